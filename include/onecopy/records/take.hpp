// take: the values of some rows of a column, in any order, gathered into memory of the caller's.
//
//     std::vector<double> area(rows.size());
//     take_numbers(table.children[3], rows, std::as_writable_bytes(std::span(area)));
//
// Random rows are cache misses. Asked for one by one they are waited for one by one; asked for together they overlap,
// because every function here fetches some rows ahead of the one it copies. No Python, no locks, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "onecopy/base/dtype.hpp"
#include "onecopy/records/node.hpp"

namespace onecopy::records {

inline constexpr std::size_t rows_ahead = 16;  // fetched before they are needed: about what a core has in flight

// Numbers of values of a node, each below its length: the caller has seen to that.
using Places = std::span<const std::uint64_t>;

// What the numbers of a column are gathered as: its own type, and F64 where there are nulls, which become NaN (so that
// ints beyond 2^53 are rounded, as in pyarrow and pandas); booleans without nulls as bytes, 0 and 1. None: no numbers.
std::optional<DType> number_type(const Node& node) noexcept;

// Of a column with a number_type. `into` holds places.size() of those.
void take_numbers(const Node& node, Places places, std::span<std::byte> into);

// Of text, bytes, list, tuple, map, array: where the items of each value would begin if they lay one after the other:
// places.size() + 1 numbers, the first 0. A null has no items. Throws FormatError: damaged, or more than 2^62 in all.
void take_offsets(const Node& node, Places places, std::span<std::int64_t> into);

// Which items those are: places in the child of a list, a tuple, a map. `total`: the last of its offsets.
std::vector<std::uint64_t> item_places(const Node& node, Places places, std::uint64_t total);

// The items themselves, of text, bytes and array: `into` holds the last of the offsets, times the item's size.
void take_items(const Node& node, Places places, std::span<std::byte> into);

// The same of a list or a tuple whose items have a number_type.
void take_item_numbers(const Node& node, Places places, std::span<std::byte> into);

// Asks for the memory of value i, and of what is below it: first what says where it lies, and, once that has come, the
// start of what lies there.
void prefetch(const Node& node, std::uint64_t i) noexcept;
void prefetch_items(const Node& node, std::uint64_t i) noexcept;

}  // namespace onecopy::records
