#include "onecopy/structs/traits.hpp"
