// What gathering many rows refuses; what it gives is in tests/python/records/test_records_take.py.
#include "onecopy/records/take.hpp"

#include <doctest/doctest.h>

#include <vector>

#include "file_of.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy {
namespace {

using records::Column;
using testing::file_of;

}  // namespace

TEST_CASE("what has no numbers says so") {
  const auto text = file_of([](Column& rows) { rows.text("a"); });
  CHECK_FALSE(records::number_type(text.rows()).has_value());
  const auto maybe = file_of([](Column& rows) { rows.boolean(true), rows.null(); });
  CHECK_FALSE(records::number_type(maybe.rows()).has_value());
}

TEST_CASE("memory that is too small for the items is not overrun") {
  const auto file = file_of([](Column& rows) { rows.text("abc"); });
  const std::vector<std::uint64_t> places{0, 0};
  std::vector<std::byte> small(5);
  CHECK_THROWS_AS(take_items(file.rows(), places, small), FormatError);
}

}  // namespace onecopy
