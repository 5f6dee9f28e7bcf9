// Arrow's PyCapsule protocol over rows, and streams of it into a builder.
#pragma once

#include <functional>

#include "bindings.hpp"
#include "onecopy/records/column.hpp"
#include "records/rows.hpp"

namespace onecopy::bindings {

nb::object arrow_schema(const Rows& rows);
nb::tuple arrow_array(const Rows& rows);  // (schema, array)
nb::object arrow_stream(const Rows& rows);

// Appends the rows of a capsule with a stream, without the GIL except for `each`, which is called after every batch, as
// are signal handlers. Returns the number of rows.
std::uint64_t append_arrow_stream(records::Column& rows, nb::handle capsule, const std::function<void()>& each);

}  // namespace onecopy::bindings
