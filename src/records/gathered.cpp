#include "onecopy/records/gathered.hpp"

#include <cstring>
#include <limits>

#include "onecopy/base/error.hpp"
#include "onecopy/records/budget.hpp"

namespace onecopy::records {
namespace {

void store(std::byte* first, unsigned width, std::uint64_t i, std::uint64_t value) noexcept {
  const auto narrow = static_cast<std::int32_t>(value);
  width == 4 ? std::memcpy(first + i * width, &narrow, width) : std::memcpy(first + i * width, &value, width);
}

}  // namespace

Gathered::Gathered(const Node& node, Places places, std::uint64_t file_bytes)
    : file_bytes_(file_bytes), node_(gather(node, places)) {}

std::span<std::byte> Gathered::room(std::uint64_t bytes) {
  return std::span(memory_.emplace_back(bytes + 1)).first(bytes);  // a valid address even for 0 bytes
}

Bits Gathered::gather_bits(const Bits& from, Places places) {
  if (from.first == nullptr) return {};
  const auto into = room(places.size() / 8 + 1);
  for (std::size_t k = 0; k < places.size(); ++k)
    if (from.at(places[k])) into[k / 8] |= std::byte{1} << (k % 8);
  return {into.data()};
}

Numbers Gathered::gather_numbers(const Numbers& from, Places places, std::uint64_t per_place) {
  if (from.first == nullptr) return {};
  const std::uint64_t size = from.width * per_place;
  const auto into = room(places.size() * size);
  for (std::size_t k = 0; k < places.size(); ++k)
    std::memcpy(into.data() + k * size, from.first + places[k] * size, size);
  return {into.data(), from.width};
}

// The previous width, if the offsets fit.
std::uint64_t Gathered::gather_offsets(const Node& from, Places places, Node& to) {
  std::vector<std::int64_t> offsets(places.size() + 1);
  take_offsets(from, places, offsets);
  expect_paid(from, places, static_cast<std::uint64_t>(offsets.back()), file_bytes_);
  const bool narrow = from.offsets.width == 4 && offsets.back() <= std::numeric_limits<std::int32_t>::max();
  const unsigned width = narrow ? 4 : 8;
  const auto into = room(offsets.size() * width);
  for (std::size_t k = 0; k < offsets.size(); ++k) store(into.data(), width, k, static_cast<std::uint64_t>(offsets[k]));
  to.offsets = {into.data(), width};
  to.items = static_cast<std::uint64_t>(offsets.back());
  return to.items;
}

void Gathered::gather_choice(const Node& from, Places places, Node& to) {
  std::vector<std::vector<std::uint64_t>> chosen(from.children.size());
  const auto tags = room(places.size());
  const auto offsets = room(places.size() * from.offsets.width);
  for (std::size_t k = 0; k < places.size(); ++k) {
    const auto [child, at] = from.chosen(places[k]);
    const auto tag = static_cast<std::size_t>(child - from.children.data());
    auto& mine = chosen[tag];
    tags[k] = static_cast<std::byte>(tag);  // not read again: a writer may have changed it since
    store(offsets.data(), from.offsets.width, k, mine.size());
    mine.push_back(at);
    if (from.offsets.width == 4 && mine.size() > std::numeric_limits<std::int32_t>::max())
      reject(FormatError::too_costly, "'" + from.path() + "': too many rows for one array");
  }
  to.tags = tags.data();
  to.offsets = {offsets.data(), from.offsets.width};
  for (std::size_t i = 0; i < chosen.size(); ++i) to.children.push_back(gather(from.children[i], chosen[i]));
}

Node Gathered::gather(const Node& from, Places places) {
  Node to;
  to.kind = from.kind;
  to.length = places.size();
  to.type = from.type;
  to.place = from.place;
  to.validity = gather_bits(from.validity, places);
  to.bits = gather_bits(from.bits, places);
  to.shape = gather_numbers(from.shape, places, from.kind == TypeKind::array ? from.type->ndim : 1);
  switch (from.kind) {
    case TypeKind::integer:
    case TypeKind::real:
    case TypeKind::number: to.data = gather_numbers(from.data, places); break;
    case TypeKind::bigint:
    case TypeKind::text:
    case TypeKind::bytes:
    case TypeKind::array: {
      const std::uint64_t size = from.kind == TypeKind::array ? from.type->item_size : 1;
      const auto into = room(gather_offsets(from, places, to) * size);
      take_items(from, places, into);
      to.data = {into.data(), 1};
      break;
    }
    case TypeKind::list:
    case TypeKind::tuple:
    case TypeKind::map: {
      const auto items = item_places(from, places, gather_offsets(from, places, to));
      for (const Node& child : from.children) to.children.push_back(gather(child, items));
      break;
    }
    case TypeKind::fixed:
    case TypeKind::record:
    case TypeKind::extension:
      for (const Node& child : from.children) to.children.push_back(gather(child, places));
      break;
    case TypeKind::choice: gather_choice(from, places, to); break;
    case TypeKind::null:
    case TypeKind::boolean: break;
  }
  return to;
}

}  // namespace onecopy::records
