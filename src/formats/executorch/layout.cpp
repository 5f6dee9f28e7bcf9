#include "formats/executorch/layout.hpp"

#include <algorithm>
#include <array>
#include <ranges>
#include <string_view>

#include "formats/checked_size.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::executorch {
namespace {

using flatbuffer::Table;
using json::describe;

namespace layout_field {
constexpr unsigned type = 0, sizes = 1, order = 2;
}

struct TypeFacts {
  std::string_view name;
  unsigned bits = 0;  // of an element; 0: packed, several in a byte
  std::optional<DType> dtype;
};

// By the numbers of PyTorch's ScalarType, with the names of scalar_type.fbs.
constexpr std::array<TypeFacts, 30> types{{
    {"BYTE", 8, DType::u8},
    {"CHAR", 8, DType::i8},
    {"SHORT", 16, DType::i16},
    {"INT", 32, DType::i32},
    {"LONG", 64, DType::i64},
    {"HALF", 16, DType::f16},
    {"FLOAT", 32, DType::f32},
    {"DOUBLE", 64, DType::f64},
    {"COMPLEXHALF", 32, {}},
    {"COMPLEXFLOAT", 64, DType::c64},
    {"COMPLEXDOUBLE", 128, {}},
    {"BOOL", 8, DType::boolean},
    {"QINT8", 8, {}},
    {"QUINT8", 8, {}},
    {"QINT32", 32, {}},
    {"BFLOAT16", 16, DType::bf16},
    {"QUINT4X2", 0, {}},
    {"QUINT2X4", 0, {}},
    {"BITS1X8", 0, {}},
    {"BITS2X4", 0, {}},
    {"BITS4X2", 0, {}},
    {"BITS8", 8, {}},
    {"BITS16", 16, {}},
    {"FLOAT8E5M2", 8, DType::f8_e5m2},
    {"FLOAT8E4M3FN", 8, DType::f8_e4m3},
    {"FLOAT8E5M2FNUZ", 8, DType::f8_e5m2fnuz},
    {"FLOAT8E4M3FNUZ", 8, DType::f8_e4m3fnuz},
    {"UINT16", 16, DType::u16},
    {"UINT32", 32, DType::u32},
    {"UINT64", 64, DType::u64},
}};
static_assert(types.back().name == "UINT64");

// The axes from the slowest to the fastest.
std::vector<std::size_t> read_order(const Table& table, const std::string& name, std::size_t axes) {
  const auto numbers = table.vector(layout_field::order, 1);
  std::vector<std::size_t> order;
  std::vector<bool> seen(axes);
  for (std::uint32_t i = 0; i < numbers.size(); ++i) {
    const std::size_t axis = numbers.number<std::uint8_t>(i);
    if (axis >= axes || seen[axis])
      reject(FormatError::inconsistent, "ExecuTorch: the order of axes of ", describe(name), " has ", axis,
             (axis >= axes ? ", but there are " + std::to_string(axes) : " twice"));
    seen[axis] = true;
    order.push_back(axis);
  }
  if (order.size() != axes)
    reject(FormatError::inconsistent, "ExecuTorch: ", describe(name), " has ", axes, " axes, but their order has ",
           order.size());
  return order;
}

// If a product overflows, an extent is 0 or the type is unknown, and the stride is never used.
std::vector<std::uint64_t> strides_of(const std::vector<std::size_t>& order, const std::vector<std::uint64_t>& shape) {
  std::vector<std::uint64_t> strides(shape.size());
  std::uint64_t stride = 1;
  // NOLINTNEXTLINE(modernize-loop-convert): clang 14 does not take libstdc++ 12's reversed views
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[*axis] = stride;
    if (__builtin_mul_overflow(stride, std::max<std::uint64_t>(shape[*axis], 1), &stride)) stride = 0;
  }
  return strides;
}

}  // namespace

FoundArray array_of(const Table& layout, std::string name, ByteRange data, EntryList& entries) {
  const auto number = layout.number<std::int8_t>(layout_field::type);
  const bool is_known = number >= 0 && static_cast<std::size_t>(number) < types.size();
  const TypeFacts facts = is_known ? types.at(static_cast<std::size_t>(number)) : TypeFacts{};
  auto shape = layout.vector(layout_field::sizes, sizeof(std::int32_t)).extents<std::int32_t>();
  if (!shape) reject(FormatError::malformed, "ExecuTorch: ", describe(name), " has a negative extent");
  if (facts.bits != 0) {
    const auto bits = checked_size(*shape, facts.bits);
    if (!bits || *bits / 8 != data.length)
      reject(bits ? FormatError::inconsistent : FormatError::out_of_bounds, "ExecuTorch: ", describe(name), " has ",
             data.length, " bytes, but its type and shape need ",
             bits ? std::to_string(*bits / 8) : "more than 2^64 bits");
  }
  FoundArray array;
  if (facts.dtype)
    array.dtype = *facts.dtype;
  else
    array.raw_type = is_known ? facts.name : entries.keep(concat("type ", number));
  const auto order = read_order(layout, name, shape->size());
  if (!std::ranges::is_sorted(order)) array.strides = strides_of(order, *shape);
  array.name = std::move(name);
  array.shape = std::move(*shape);
  array.data = data;
  return array;
}

}  // namespace onecopy::executorch
