#include "onecopy/records/budget.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "onecopy/base/error.hpp"

namespace onecopy::records {
namespace {

constexpr std::uint64_t spare_bits = std::uint64_t{1} << 19U;   // offsets at the boundaries of lists are read twice
constexpr std::uint64_t spare_units = std::uint64_t{1} << 22U;  // words of memory for values without bits in the file
constexpr std::uint64_t words_of_container = 30;                // memory of an empty Python dict

// Saturates at the largest number.
std::uint64_t product(std::uint64_t cost, std::uint64_t count) noexcept {
  std::uint64_t whole = 0;
  return __builtin_mul_overflow(cost, count, &whole) ? UINT64_MAX : whole;
}

std::uint64_t own_bits(const Node& node) noexcept {
  switch (node.kind) {
    case TypeKind::boolean: return 1;
    case TypeKind::number: return std::uint64_t{8} * node.data.width + 1;
    case TypeKind::integer:
    case TypeKind::real: return std::uint64_t{8} * node.data.width;
    default: return std::uint64_t{8} * (node.offsets.width + node.shape.width);
  }
}

// Whether the children have a value for each of the node's.
bool is_row(const Node& node) noexcept {
  return node.kind == TypeKind::record || node.kind == TypeKind::fixed || node.kind == TypeKind::extension;
}

// The highest number of requests for one place.
std::uint64_t most_often(Places places) {
  std::vector<std::uint64_t> sorted(places.begin(), places.end());
  std::ranges::sort(sorted);
  std::uint64_t most = 1;
  std::uint64_t run = 1;
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    run = sorted[i] == sorted[i - 1] ? run + 1 : 1;
    most = std::max(most, run);
  }
  return most;
}

}  // namespace

Cost cost_of(const Node& node) noexcept {
  Cost cost{own_bits(node) + (node.validity.first == nullptr ? 0U : 1U), 1};
  if (!is_row(node)) return cost;
  cost.units += words_of_container;
  for (const Node& child : node.children) {
    const auto below = cost_of(child);
    cost.bits += below.bits;
    cost.units += below.units;
  }
  return cost;
}

Budget::Budget(std::uint64_t file_bytes, std::uint64_t times) noexcept
    : file_bytes_(file_bytes),
      bits_left_(product(file_bytes * 8 + spare_bits, times)),
      units_left_(product(file_bytes + spare_units, times)) {}

bool Budget::covers(const Cost& cost, std::uint64_t count) const noexcept {
  return cost.bits != 0 ? product(cost.bits, count) <= bits_left_ : product(cost.units, count) <= units_left_;
}

void Budget::charge(const Cost& cost, std::uint64_t count, const Node& node) {
  if (!covers(cost, count))
    reject(FormatError::too_costly, "'", node.path(), "': there are more values than a file of ", file_bytes_,
           " bytes can contain: the file is damaged, or was made to exhaust memory");
  if (cost.bits != 0)
    bits_left_ -= cost.bits * count;
  else
    units_left_ -= cost.units * count;
}

void expect_paid(const Node& node, Places places, std::uint64_t total, std::uint64_t file_bytes) {
  const auto pay = [&](const Cost& cost) {
    if (!Budget(file_bytes).covers(cost, total)) Budget(file_bytes, most_often(places)).charge(cost, total, node);
  };
  if (node.children.empty()) pay({std::uint64_t{8} * (node.kind == TypeKind::array ? node.type->item_size : 1), 0});
  for (const Node& child : node.children) pay(cost_of(child));
}

}  // namespace onecopy::records
