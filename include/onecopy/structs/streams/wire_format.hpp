// The bytes of a stream, for each kind of C++ type; shared by the loader, the saver and the sizer.
//
//     plain types (is_pod_v)      their sizeof bytes, as they lie in memory; padding as zeros (where the compiler can)
//     vector, OwningSpan, string  u64 count, then the elements
//     optional                    u8, 1 or 0, then the value if there is one
//     pair                        first, second
//     array of non-plain types    the elements
//     anything with a member      what that visits, in its order
//       visit(visitor)
//
// Little-endian, packed: nothing is aligned, named or typed. string, optional, pair and arrays of non-plain types are
// extensions of onecopy; the rest is the format of the library `essentials`.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/traits.hpp"

namespace onecopy::streams {

static_assert(std::endian::native == std::endian::little && sizeof(std::size_t) == sizeof(std::uint64_t),
              "streams are read and written as they lie in the memory of 64-bit little-endian machines");

template <class T>
inline constexpr bool is_sequence_v = is_vector_v<T> || is_owning_span_v<T> || is_string_v<T>;

// Addresses are invalid in another process.
template <class T>
inline constexpr bool is_address_v = std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T>;

// True if the bytes must not be written directly: some of them may be uninitialised padding. Also true of structs with
// floating-point members, which have two zeros, not padding; for them clearing changes nothing.
template <class T>
inline constexpr bool may_have_padding_v =
    !std::has_unique_object_representations_v<T> && !std::same_as<T, float> && !std::same_as<T, double>;

// Calls `visitor`, which has plain(), sequence() and optional(), for the type of `value`.
struct WireFormat {
  template <class Visitor, class T>
  static void visit(Visitor& visitor, T& value) {
    using Value = std::remove_const_t<T>;
    static_assert(!is_address_v<std::remove_all_extents_t<Value>>, "a pointer cannot be saved: save what it points to");
    if constexpr (is_sequence_v<Value>) {
      check_elements<Value>();
      visitor.sequence(value);
    } else if constexpr (is_optional_v<Value>) {
      visitor.optional(value);
    } else if constexpr (is_pod_v<Value>) {
      visitor.plain(value);
    } else if constexpr (is_pair_v<Value>) {
      visitor.visit(value.first, "first");
      visitor.visit(value.second, "second");
    } else if constexpr (is_std_array_v<Value> || std::is_array_v<Value>) {
      for (auto& element : value) visitor.visit(element);
    } else {
      static_assert(
          requires { value.visit(visitor); },
          "the type needs a member: template <class Visitor> void "
          "visit(Visitor& visitor), and a const one to be saved; for std::map, use a sorted std::vector");
      value.visit(visitor);
    }
  }

 private:
  template <class Sequence>
  static constexpr void check_elements() {
    using Element = std::ranges::range_value_t<Sequence>;
    static_assert(!is_address_v<Element>, "a pointer cannot be saved: save what it points to");
    static_assert(!std::same_as<Element, bool>, "a sequence of bool cannot be saved: use std::uint8_t or bit words");
  }
};

}  // namespace onecopy::streams
