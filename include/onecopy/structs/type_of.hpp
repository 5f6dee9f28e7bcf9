// The table of a C++ type, made at compile time. Types that no file can hold are refused here, with a message.
#pragma once

#include <algorithm>
#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string_view>
#include <type_traits>
#include <utility>

#include "onecopy/base/dtype.hpp"
#include "onecopy/structs/classify.hpp"
#include "onecopy/structs/names.hpp"

namespace onecopy::structs {

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_enum_v<T>) {
    return dtype_of<std::underlying_type_t<T>>();
  } else if constexpr (std::same_as<T, bool>) {
    return DType::boolean;
  } else if constexpr (std::same_as<T, char>) {
    return DType::u8;  // signed on some machines; text in all files
  } else if constexpr (std::is_floating_point_v<T>) {
    static_assert(sizeof(T) <= 8, "long double differs between machines; use double");
    return sizeof(T) == 4 ? DType::f32 : DType::f64;
  } else if constexpr (is_complex_v<T>) {
    return DType::c64;
  } else {
    constexpr bool negative = std::is_signed_v<T>;
    switch (sizeof(T)) {
      case 1: return negative ? DType::i8 : DType::u8;
      case 2: return negative ? DType::i16 : DType::u16;
      case 4: return negative ? DType::i32 : DType::u32;
      default: return negative ? DType::i64 : DType::u64;
    }
  }
}

// The plain elements of a sequence or an array, which are used in place.
template <class E>
constexpr void expect_element() {
  if constexpr (is_fixed<E>()) {
    static_assert(!has_bool<E>(),
                  "a bool among mapped elements is not supported: a damaged file could contain one that is neither "
                  "true nor false; use std::uint8_t");
    static_assert(used_bytes<E>() == sizeof(E) || allow_padding<E>,
                  "the element type has padding, whose bytes are undefined: reorder or fill its fields, or specialise "
                  "onecopy::allow_padding for it (padding is then written as zeros)");
  } else {
    static_assert(std::default_initializable<E>, "elements must be default-constructible, so that they can be opened");
  }
}

template <class T>
struct SequenceOf {
  using E = typename T::value_type;

  static std::uint64_t count(const void* sequence) {
    const auto& all = *static_cast<const T*>(sequence);
    if constexpr (is_optional_v<T>)
      return all.has_value() ? 1 : 0;
    else
      return all.size();
  }
  static const std::byte* items(const void* sequence) {
    const auto& all = *static_cast<const T*>(sequence);
    if constexpr (is_optional_v<T>)
      return all ? reinterpret_cast<const std::byte*>(std::addressof(*all)) : nullptr;
    else
      return reinterpret_cast<const std::byte*>(all.data());
  }
  static std::byte* resize(void* sequence, std::uint64_t count) {
    auto& all = *static_cast<T*>(sequence);
    if constexpr (is_optional_v<T>) {
      all.reset();
      return count == 0 ? nullptr : reinterpret_cast<std::byte*>(std::addressof(all.emplace()));
    } else {
      all.resize(count);
      return reinterpret_cast<std::byte*>(all.data());
    }
  }
  static void look(const Places& sequences, const std::byte* items, const std::uint64_t* offsets,
                   const std::shared_ptr<const void>& owner) {
    const auto* all = reinterpret_cast<const E*>(items);
    const auto set = [&](std::byte* place, std::uint64_t i) {
      *reinterpret_cast<T*>(place) = T(all + offsets[i], offsets[i + 1] - offsets[i], owner);
    };
    for (std::uint64_t i = 0; i < sequences.count; ++i) set(sequences[i], i);
  }
  static std::shared_ptr<void> allocate(std::uint64_t count) {
    return std::make_shared<E[]>(count);  // NOLINT(modernize-avoid-c-arrays): one allocation, one owner
  }

  static constexpr SequenceOps ops() {
    if constexpr (!is_owning_span_v<T>)
      return {count, items, resize, nullptr, nullptr};
    else if constexpr (is_fixed<E>())
      return {count, items, nullptr, look, nullptr};
    else
      return {count, items, nullptr, look, allocate};
  }
};

template <class T>
inline constexpr SequenceOps sequence_ops = SequenceOf<T>::ops();

template <class T>
inline constexpr auto fields_of = []<std::size_t... i>(std::index_sequence<i...>) {
  return std::array<Field, sizeof...(i)>{Field{field_name<T, i>, &type_of<field_t<T, i>>}...};
}(std::make_index_sequence<count_fields<T>()>{});

template <class A, class B>
inline constexpr std::array<Field, 2> fields_of<std::pair<A, B>> = {Field{"first", &type_of<A>},
                                                                    Field{"second", &type_of<B>}};

template <class T>
void visit_fields(const void* record, FieldSink& sink) {
  const T& value = *static_cast<const T*>(record);
  if constexpr (is_pair_v<T>) {
    sink.field("first", std::addressof(value.first), *fields_of<T>[0].type);
    sink.field("second", std::addressof(value.second), *fields_of<T>[1].type);
  } else if constexpr (Reflected<T> && is_countable<T>) {
    const auto pointers = field_pointers(value);
    [&]<std::size_t... i>(std::index_sequence<i...>) {
      (sink.field(fields_of<T>[i].name, std::get<i>(pointers), *fields_of<T>[i].type), ...);
    }(std::make_index_sequence<count_fields<T>()>{});
  } else if constexpr (HasVisit<T>) {
    FieldVisitor visitor(sink);
    if constexpr (requires { value.visit(visitor); })
      value.visit(visitor);
    else                                     // one visit() for both: this visitor only takes addresses
      const_cast<T&>(value).visit(visitor);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
}

template <class T>
std::shared_ptr<void> make_default() {
  return std::make_shared<T>();
}

template <class T>
constexpr Type make_record() {
  Type type{.form = Form::record, .fixed = is_fixed<T>(), .size = sizeof(T), .alignment = alignof(T)};
  if constexpr (!HasVisit<T>) {
    if constexpr (Reflected<T>) {
      static_assert(!HasBase<T>, "an aggregate with a base class: its fields cannot be separated; add a visit()");
      static_assert(count_fields<T>() != uncountable,
                    "an aggregate that cannot be taken apart: a field cannot be made from {} (is it a reference?), or "
                    "there are more than 48 fields; add a visit(), or nest some fields");
      static_assert(count_fields<T>() > 0, "an aggregate without fields cannot be stored");
    }
    if constexpr (is_pair_v<T> || is_countable<T>) type.fields = fields_of<T>;
  }
  type.visit = visit_fields<T>;
  if constexpr (std::default_initializable<T>) type.make = make_default<T>;
  return type;
}

template <class T>
constexpr Type make_array() {
  using E = std::remove_cvref_t<decltype(std::declval<T&>()[0])>;
  expect_element<E>();
  return {.form = Form::array,
          .fixed = is_fixed<T>(),
          .size = sizeof(T),
          .alignment = alignof(T),
          .element = &type_of<E>,
          .count = sizeof(T) / sizeof(E)};
}

template <class T>
constexpr Type make_sequence() {
  using E = typename T::value_type;
  static_assert(!std::same_as<T, std::vector<bool>>, "std::vector<bool> has no elements in memory; use std::uint8_t");
  if constexpr (!is_optional_v<T> || !std::same_as<E, bool>) expect_element<E>();
  return {.form = Form::sequence,
          .text = is_string_v<T>,
          .at_most_one = is_optional_v<T>,
          .size = sizeof(T),
          .alignment = alignof(T),
          .element = &type_of<E>,
          .sequence = &sequence_ops<T>};
}

template <class T>
constexpr Type make_type() {
  static_assert(!Pointing<T>,
                "a pointer, a reference or a view of other memory cannot be stored: its target is not in the file; use "
                "OwningSpan, std::vector or an index");
  if constexpr (is_scalar_v<T>) {
    static_assert(!std::is_enum_v<T> || FixedEnum<T>,
                  "an enum without a fixed underlying type: a damaged file could contain "
                  "an invalid value; write `enum E : std::uint8_t`");
    return {.form = Form::number, .fixed = true, .dtype = dtype_of<T>(), .size = sizeof(T), .alignment = alignof(T)};
  } else if constexpr (std::is_array_v<T> || is_std_array_v<T>) {
    return make_array<T>();
  } else if constexpr (Sequence<T>) {
    return make_sequence<T>();
  } else if constexpr (HasVisit<T> || Reflected<T> || is_pair_v<T>) {
    return make_record<T>();
  } else {
    static_assert(
        !std::ranges::range<T>,
        "a container of nodes, such as std::map, std::set or std::list: use a sorted std::vector or OwningSpan "
        "of std::pair or of a struct, and search it with std::ranges::lower_bound");
    static_assert(is_fixed<T>(), "the type is not an aggregate and has no visit(visitor) that lists its fields");
    static_assert(std::has_unique_object_representations_v<T>,
                  "its fields are not visible, and it may have padding: make it an aggregate, or add a visit()");
    return {.form = Form::opaque, .fixed = true, .size = sizeof(T), .alignment = alignof(T)};
  }
}

}  // namespace onecopy::structs
