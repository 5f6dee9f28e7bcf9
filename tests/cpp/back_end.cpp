#include "back_end.hpp"

#ifdef ONECOPY_OS_linux
const bool onecopy::testing::on_linux = true;
#else
const bool onecopy::testing::on_linux = false;
#endif
