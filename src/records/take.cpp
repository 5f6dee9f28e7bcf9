#include "onecopy/records/take.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"

namespace onecopy::records {
namespace {

constexpr std::size_t line = 64;                     // bytes of a cache line
constexpr std::size_t most_lines = 4;                // of one value: the hardware prefetches the rest
constexpr std::size_t items_ahead = rows_ahead / 2;  // their offsets have arrived by then

constexpr std::size_t between_polls = std::size_t{1} << 16U;  // places

void fetch(const std::byte* address) noexcept { __builtin_prefetch(address); }

void fetch(const Numbers& numbers, std::uint64_t i) noexcept {
  if (numbers.first != nullptr) fetch(numbers.first + i * numbers.width);
}

void fetch(const std::byte* first, std::uint64_t size) noexcept {
  for (std::size_t at = 0; at < std::min<std::uint64_t>(size, most_lines * line); at += line) fetch(first + at);
}

bool has_offsets(const Node& node) noexcept { return node.offsets.first != nullptr && node.kind != TypeKind::choice; }

bool is_number(const Node& node) noexcept {
  return node.kind == TypeKind::integer || node.kind == TypeKind::real || node.kind == TypeKind::number;
}

bool in_rows(const Node& node) noexcept {  // its children have one value for each of its own
  return node.kind == TypeKind::record || node.kind == TypeKind::fixed || node.kind == TypeKind::extension;
}

// The memory that a range of items is copied from: bytes of text, elements of arrays, numbers of a list.
struct Items {
  const std::byte* first;
  std::uint64_t size;  // of one, in bytes
};

Items items_of(const Node& node) noexcept {
  if (node.kind == TypeKind::array) return {node.data.first, node.type->item_size};
  if (node.children.empty()) return {node.data.first, 1};
  const Node& items = node.children[0];
  return is_number(items) ? Items{items.data.first, items.data.width} : Items{nullptr, 0};
}

Node::Range range_of(const Node& node, std::uint64_t i) { return node.null(i) ? Node::Range{0, 0} : node.range(i); }

// Offsets were summed before: a write into the mapped file meanwhile must not cause a write outside of this memory.
FormatError changed(const Node& node) {
  return {FormatError::inconsistent, "'" + node.path() + "': the file was modified while it was read"};
}

// Calls `copy(k, place)` for every place, with the element of `numbers` that it will read prefetched.
template <class Copy>
void each(const Numbers& numbers, Places places, const Copy& copy) {
  for (std::size_t k = 0; k < places.size(); ++k) {
    if (k % between_polls == 0) poll_interrupt();
    if (k + rows_ahead < places.size()) fetch(numbers, places[k + rows_ahead]);
    copy(k, places[k]);
  }
}

template <class T>
void copy_numbers(const Node& node, Places places, std::byte* into) {
  each(node.data, places, [&](std::size_t k, std::uint64_t i) {
    const T value = node.data.load<T>(i);
    std::memcpy(into + k * sizeof value, &value, sizeof value);
  });
}

void copy_with_nan(const Node& node, Places places, std::byte* into) {
  each(node.data, places, [&](std::size_t k, std::uint64_t i) {
    double value = std::numeric_limits<double>::quiet_NaN();
    if (!node.null(i))
      value = node.kind == TypeKind::integer ? static_cast<double>(node.data.signed_at(i)) : node.real(i);
    std::memcpy(into + k * sizeof value, &value, sizeof value);
  });
}

// Calls `copy(range)` for the items of every place, with offsets and the start of the items prefetched.
template <class Copy>
void each_range(const Node& node, Places places, const Copy& copy) {
  const Items items = items_of(node);
  for (std::size_t k = 0; k < places.size(); ++k) {
    if (k % between_polls == 0) poll_interrupt();
    if (k + rows_ahead < places.size()) fetch(node.offsets, places[k + rows_ahead]);
    if (k + items_ahead < places.size() && items.size != 0) {
      const auto next = range_of(node, places[k + items_ahead]);
      fetch(items.first + next.begin * items.size, next.size() * items.size);
    }
    copy(range_of(node, places[k]));
  }
}

void copy_items(const Node& node, Places places, std::span<std::byte> into) {
  const Items items = items_of(node);
  std::uint64_t end = 0;
  each_range(node, places, [&](const Node::Range& range) {
    const std::uint64_t bytes = range.size() * items.size;
    if (!in_bounds(into.size(), end, bytes)) throw changed(node);
    if (bytes != 0) std::memcpy(into.data() + end, items.first + range.begin * items.size, bytes);
    end += bytes;
  });
}

}  // namespace

std::optional<DType> number_type(const Node& node) noexcept {
  const bool nulls = node.validity.first != nullptr;
  switch (node.kind) {
    case TypeKind::boolean: return nulls ? std::nullopt : std::optional(DType::boolean);
    case TypeKind::real:
    case TypeKind::number: return DType::f64;
    case TypeKind::integer: break;
    default: return std::nullopt;
  }
  if (nulls) return DType::f64;
  switch (node.data.width) {
    case 1: return DType::i8;
    case 2: return DType::i16;
    case 4: return DType::i32;
    default: return DType::i64;
  }
}

void take_numbers(const Node& node, Places places, std::span<std::byte> into) {
  if (node.kind == TypeKind::boolean) {
    for (std::size_t k = 0; k < places.size(); ++k) {
      if (k + rows_ahead < places.size()) fetch(node.bits.first + places[k + rows_ahead] / 8);
      into[k] = std::byte{node.bits.at(places[k])};
    }
    return;
  }
  if (node.validity.first != nullptr) return copy_with_nan(node, places, into.data());
  switch (node.data.width) {
    case 1: return copy_numbers<std::uint8_t>(node, places, into.data());
    case 2: return copy_numbers<std::uint16_t>(node, places, into.data());
    case 4: return copy_numbers<std::uint32_t>(node, places, into.data());
    default: return copy_numbers<std::uint64_t>(node, places, into.data());
  }
}

void take_offsets(const Node& node, Places places, std::span<std::int64_t> into) {
  std::uint64_t total = 0;
  into[0] = 0;
  each(node.offsets, places, [&](std::size_t k, std::uint64_t i) {
    const std::uint64_t size = range_of(node, i).size();
    if (!in_bounds(std::uint64_t{1} << 62U, total, size))
      reject(FormatError::too_costly, "'" + node.path() + "': these rows have too many items for one array");
    total += size;
    into[k + 1] = static_cast<std::int64_t>(total);
  });
}

std::vector<std::uint64_t> item_places(const Node& node, Places places, std::uint64_t total) {
  std::vector<std::uint64_t> items;
  items.reserve(total);
  for (const std::uint64_t i : places) {
    const auto range = range_of(node, i);
    if (!in_bounds(total, items.size(), range.size())) throw changed(node);
    for (std::uint64_t item = range.begin; item < range.end; ++item) items.push_back(item);
  }
  if (items.size() != total) throw changed(node);
  return items;
}

void take_items(const Node& node, Places places, std::span<std::byte> into) { copy_items(node, places, into); }

void take_item_numbers(const Node& node, Places places, std::span<std::byte> into) {
  const Node& items = node.children[0];
  const bool side_by_side = items.kind != TypeKind::boolean && items.validity.first == nullptr;
  if (side_by_side) return copy_items(node, places, into);
  const std::size_t size = bits(number_type(items).value_or(DType::f64)) / 8;
  const auto wanted = item_places(node, places, into.size() / size);
  take_numbers(items, wanted, into);
}

void prefetch(const Node& node, std::uint64_t i) noexcept {
  if (node.data.width > 1 || node.kind == TypeKind::integer) fetch(node.data, i);
  fetch(node.offsets, i);
  if (in_rows(node))
    for (const Node& child : node.children) prefetch(child, i);
}

void prefetch_items(const Node& node, std::uint64_t i) noexcept {
  if (in_rows(node)) {
    for (const Node& child : node.children) prefetch_items(child, i);
    return;
  }
  if (!has_offsets(node)) return;
  const std::uint64_t begin = node.offsets.unsigned_at(i);
  const std::uint64_t end = node.offsets.unsigned_at(i + 1);
  if (begin >= end || end > node.items) return;  // damaged, or empty: reading it reports that
  const Items items = items_of(node);
  if (items.size != 0)
    fetch(items.first + begin * items.size, (end - begin) * items.size);
  else if (!node.children.empty())
    prefetch(node.children[0], begin);
}

}  // namespace onecopy::records
