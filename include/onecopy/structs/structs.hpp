// All headers of the module for new code: OwningSpan, save, open, share, byte_size, schema. (For code written to the
// essentials library: essentials.hpp.)
#pragma once

#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/save.hpp"
#include "onecopy/structs/schema.hpp"
#include "onecopy/structs/share.hpp"
#include "onecopy/structs/struct_file.hpp"
