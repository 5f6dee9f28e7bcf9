// Everything of the room: OwningSpan, save, open, byte_size, schema.
#pragma once

#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/save.hpp"
#include "onecopy/structs/schema.hpp"
#include "onecopy/structs/struct_file.hpp"
