// take: the values of some rows of a column, in any order, copied into memory of the caller.
//
//     std::vector<double> area(rows.size());
//     take_numbers(table.children[3], rows, std::as_writable_bytes(std::span(area)));
//
// Random rows cause cache misses. Row by row, each miss is waited for; in one call they overlap, because every function
// here prefetches some rows ahead of the one that it copies. No Python, no locks, any thread.
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

// Positions of values of a node; the caller guarantees that each is below its length.
using Places = std::span<const std::uint64_t>;

// The type in which the numbers of a column are gathered: its own type; F64 with NaN for nulls (so that ints beyond
// 2^53 are rounded, as in pyarrow and pandas); bytes 0 and 1 for booleans without nulls. None: not numbers.
std::optional<DType> number_type(const Node& node) noexcept;

// Of a column with a number_type. `into` holds places.size() numbers of that type.
void take_numbers(const Node& node, Places places, std::span<std::byte> into);

// Of text, bytes, list, tuple, map, array: the offsets of the items of each value in a contiguous copy: places.size() +
// 1 numbers, the first 0. A null has no items. Throws FormatError: damaged, or more than 2^62 in all.
void take_offsets(const Node& node, Places places, std::span<std::int64_t> into);

// The positions of those items in the child of a list, a tuple, a map. `total`: the last of the offsets; throws
// FormatError if there are more or fewer, because the file was written to since.
std::vector<std::uint64_t> item_places(const Node& node, Places places, std::uint64_t total);

// The items themselves, of text, bytes and array. The size of `into` in bytes is the last offset times the item's size.
void take_items(const Node& node, Places places, std::span<std::byte> into);

// The items of a list or a tuple whose items have a number_type.
void take_item_numbers(const Node& node, Places places, std::span<std::byte> into);

// Prefetches value i and its children: first the offsets, then, in a later call, the start of the items.
void prefetch(const Node& node, std::uint64_t i) noexcept;
void prefetch_items(const Node& node, std::uint64_t i) noexcept;

}  // namespace onecopy::records
