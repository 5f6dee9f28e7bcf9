// Which C++ types can be stored, and how: decided at compile time, with an error message for types that cannot.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <ranges>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "onecopy/structs/fields.hpp"
#include "onecopy/structs/traits.hpp"
#include "onecopy/structs/type.hpp"

namespace onecopy {

// Specialise for an element type with intentional padding: it is written as zeros.
//     template <> inline constexpr bool onecopy::allow_padding<Node> = true;
template <class T>
inline constexpr bool allow_padding = false;

namespace structs {

template <class T>
constexpr Type make_type();

template <class T>
inline constexpr Type type_of = make_type<T>();

// Passes each field of a class that lists its fields to a visitor: `visitor.visit(field)`, `visitor.visit(field,
// "name")`.
class FieldVisitor {
 public:
  explicit FieldVisitor(FieldSink& sink) noexcept : sink_(sink) {}

  template <class T>
  void visit(T& field, std::string_view name = {}) {
    sink_.field(name, std::addressof(field), type_of<std::remove_const_t<T>>);
  }

 private:
  FieldSink& sink_;
};

template <class T>
concept HasVisit = requires(T& value, FieldVisitor& visitor) { value.visit(visitor); };

template <class T>
concept Reflected = std::is_class_v<T> && std::is_aggregate_v<T> && !HasVisit<T> && !is_std_array_v<T>;

template <class T>
concept Sequence = is_vector_v<T> || is_owning_span_v<T> || is_string_v<T> || is_optional_v<T>;

// Points to memory that another object owns.
template <class T>
concept Pointing = std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_reference_v<T> ||
                   std::is_null_pointer_v<T> || std::ranges::borrowed_range<T> || requires {
                     typename T::element_type;
                     typename T::deleter_type;
                   } || requires(const T& t) {
                     typename T::element_type;
                     t.use_count();
                     t.get();
                   };

// E{0} is allowed only for enums whose every bit pattern is a value.
template <class T>
concept FixedEnum = std::is_enum_v<T> && requires { T{0}; };

template <class T>
struct OnlyBaseOf {
  template <class U>
    requires(std::is_base_of_v<U, T> && !std::same_as<U, T>)
  operator U() const;  // NOLINT(google-explicit-constructor): never called
};
template <class T>
concept HasBase = requires { T{OnlyBaseOf<T>{}}; };

// Reflection can list its fields.
template <class T>
inline constexpr bool is_countable = count_fields<T>() != uncountable && count_fields<T>() != 0 && !HasBase<T>;

template <class T>
inline constexpr bool is_separable = [] {
  if constexpr (std::is_class_v<T> && std::is_aggregate_v<T> && !is_std_array_v<T>)
    return is_countable<T>;
  else
    return false;
}();

template <class T, std::size_t i>
using field_t = std::remove_cvref_t<decltype(*std::get<i>(field_pointers(std::declval<const T&>())))>;

template <class T, class Test>
constexpr bool all_fields(Test test) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    return (test.template operator()<field_t<T, i>>() && ...);
  }(std::make_index_sequence<count_fields<T>()>{});
}

// The bytes are the value, the same in every process.
template <class T>
constexpr bool is_fixed() {
  if constexpr (is_scalar_v<T>)
    return true;
  else if constexpr (std::is_array_v<T>)
    return is_fixed<std::remove_extent_t<T>>();
  else if constexpr (is_std_array_v<T>)
    return is_fixed<typename T::value_type>();
  else if constexpr (Pointing<T> || Sequence<T> || !std::is_trivially_copyable_v<T> || !std::is_standard_layout_v<T>)
    return false;
  else if constexpr (Reflected<T>)
    return is_countable<T> && all_fields<T>([]<class F> { return is_fixed<F>(); });
  else
    return !HasVisit<T>;
}

template <class T>
constexpr bool has_bool() {
  if constexpr (std::is_array_v<T>)
    return has_bool<std::remove_extent_t<T>>();
  else if constexpr (is_std_array_v<T>)
    return has_bool<typename T::value_type>();
  else if constexpr (is_separable<T>)
    return !all_fields<T>([]<class F> { return !has_bool<F>(); });
  else
    return std::same_as<T, bool>;
}

// Whether each bool in a value of plain bytes is 0 or 1. Reads its bytes: the program must not read another bool.
template <class T>
bool has_valid_bools(const T& value) noexcept {
  if constexpr (std::same_as<T, bool>) {
    return *reinterpret_cast<const unsigned char*>(std::addressof(value)) <= 1;
  } else if constexpr (!has_bool<T>()) {
    return true;
  } else if constexpr (std::is_array_v<T> || is_std_array_v<T>) {
    return std::ranges::all_of(value, [](const auto& element) { return has_valid_bools(element); });
  } else {
    const auto* const begin = reinterpret_cast<const std::byte*>(std::addressof(value));
    const auto is_valid = [begin]<class F>(const F* field) {
      const auto* const at = reinterpret_cast<const std::byte*>(field);
      const bool is_copy = std::less<>()(at, begin) || !std::less<>()(at, begin + sizeof(T));  // of a bit-field
      return is_copy || has_valid_bools(*field);
    };
    return std::apply([&](const auto*... fields) { return (is_valid(fields) && ...); }, field_pointers(value));
  }
}

// Bytes of T that belong to fields.
template <class T>
constexpr std::size_t used_bytes() {
  if constexpr (std::is_array_v<T>) {
    return std::extent_v<T> * used_bytes<std::remove_extent_t<T>>();
  } else if constexpr (is_std_array_v<T>) {
    return std::tuple_size_v<T> * used_bytes<typename T::value_type>();
  } else if constexpr (Reflected<T>) {
    std::size_t sum = 0;
    all_fields<T>([&]<class F> { return sum += used_bytes<F>(), true; });
    return sum;
  } else {
    return sizeof(T);
  }
}
}  // namespace structs
}  // namespace onecopy
