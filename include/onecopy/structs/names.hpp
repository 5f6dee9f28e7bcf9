// The names of an aggregate's fields, as the compiler spells them.
//
// The address of a field of an object that is declared and never defined is a template argument; the text of the
// function that has it ends in the field's name: `...::value.Index::seed)}]` (gcc), `{&object.value.seed}]` (clang).
#pragma once

#include <cstddef>
#include <string_view>
#include <tuple>

#include "onecopy/structs/fields.hpp"

namespace onecopy::structs {

template <class T>
struct Never {
  T value;
};
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#pragma clang diagnostic ignored "-Wundefined-internal"  // of a type in an unnamed namespace
#endif
template <class T>
extern const Never<T> never_defined;

template <class Pointer>
struct Address {
  Pointer pointer;
};
template <class Pointer>
Address(Pointer) -> Address<Pointer>;

template <Address address>
consteval std::string_view spelled() {
#if defined(_MSC_VER) && !defined(__clang__)
  return __FUNCSIG__;
#else
  return __PRETTY_FUNCTION__;
#endif
}

constexpr std::string_view last_name(std::string_view text) noexcept {
  const auto is_name = [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           static_cast<unsigned char>(c) >= 0x80;
  };
  std::size_t end = text.rfind('}');  // of the address; the text behind it depends on the compiler
  while (end > 0 && !is_name(text[end - 1])) --end;
  std::size_t begin = end;
  while (begin > 0 && is_name(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

template <class T, std::size_t i>
inline constexpr std::string_view field_name =
    last_name(spelled<Address{std::get<i>(field_pointers(never_defined<T>.value))}>());

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

}  // namespace onecopy::structs
