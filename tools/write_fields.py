"""Write include/onecopy/structs/fields.hpp, a case for each number of fields: tools/write_fields.py [--check].

C++20 can take an aggregate apart only by a structured binding, and its names must be spelled out.
"""

import sys
from pathlib import Path

MOST = 48
TARGET = Path(__file__).parent.parent / "include/onecopy/structs/fields.hpp"

HEAD = f"""\
// How many fields an aggregate has, and where they are. Written by tools/write_fields.py: C++20 can take an aggregate
// apart only by a structured binding, whose names must be spelled out, so there is a case for each number.
//
// Counting asks how many `{{}}` the aggregate takes: a C array takes one. Where a field cannot be made from `{{}}` (a
// reference), or there are more than {MOST}, the answer is `uncountable`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

namespace onecopy::structs {{

inline constexpr std::size_t uncountable = SIZE_MAX;

struct Anything {{
  template <class T>
  operator T&() const;  // NOLINT(google-explicit-constructor): never called
  template <class T>
  operator T&&() const;  // NOLINT(google-explicit-constructor)
}};

template <class... Fields>
constexpr auto addresses(const Fields&... fields) noexcept {{
  return std::tuple(std::addressof(fields)...);
}}

// clang-format off
template <class T>
constexpr std::size_t count_fields() {{
"""


def main() -> int:
    """Write the header, or with --check report whether it is up to date."""
    lines = []
    for n in range(1, MOST + 2):
        braces = ["{}"] * (n - 1)
        fewer, one_more = ", ".join([*braces, "Anything()"]), ", ".join([*braces, "{}"])
        lines += [f"  {'else ' if n > 1 else ''}if constexpr (!requires {{ T{{{one_more}}}; }})"]
        lines += [f"    return requires {{ T{{{fewer}}}; }} ? uncountable : {n - 1};"]
    lines += ["  else return uncountable;", "}", "", "// A tuple of pointers, in the order of declaration."]
    lines += ["template <class T>", "constexpr auto field_pointers(const T& value) noexcept {"]
    lines += ["  constexpr std::size_t n = count_fields<T>();", "  if constexpr (n == 0) return std::tuple<>();"]
    for n in range(1, MOST + 1):
        names = ", ".join(f"f{i}" for i in range(1, n + 1))
        lines += [f"  else if constexpr (n == {n}) {{ const auto& [{names}] = value; return addresses({names}); }}"]
    text = HEAD + "\n".join([*lines, "}", "// clang-format on", "", "}  // namespace onecopy::structs", ""])
    if "--check" not in sys.argv:
        TARGET.write_text(text)
    elif TARGET.read_text() != text:
        print(f"{TARGET}: run tools/write_fields.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
