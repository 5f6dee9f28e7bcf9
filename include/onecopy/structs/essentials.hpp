// The serialisation half of the library `essentials` (github.com/jermp/essentials), for code that was written to it:
// change the include, keep the rest.
//
// Here: owning_span, is_owning_span(_v), is_pod, loader, generic_loader, saver, generic_saver, sizer, load, save, mmap,
// print_size, visit, load_with_custom_memory_allocation, allocator, contiguous_memory_allocator, version_number,
// demangle, vec_bytes, pod_bytes, load_pod, save_pod, and the standard headers that came along with it. Files are the
// same in both directions.
//
// Not here, because it is not about data: logger, timer, json_lines, directory, create_directory, remove_directory,
// file_size, convert, words_for, the units, uniform_int_rng, get_random_seed, do_not_optimize_away, maxrss_in_bytes.
//
// What differs: errors are thrown (FormatError, OsError), never printed; mmap() of a value with vectors copies them; a
// copy of a vector into a span must be written as one, owning_span<T>(vector); pointers and sequences of bool do not
// compile; contiguous_memory_allocator::visitor is generic_loader with set_block.
//
// Define ONECOPY_NO_ESSENTIALS_NAMESPACE where a namespace `essentials` exists; then the names are in onecopy::streams.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <locale>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/streams.hpp"
#include "onecopy/structs/traits.hpp"

namespace onecopy::streams {

template <class T>
using owning_span = OwningSpan<T>;

template <class T>
struct is_owning_span : std::bool_constant<onecopy::is_owning_span_v<T>> {};
using onecopy::is_owning_span_v;

template <class T>
struct is_pod : std::bool_constant<is_pod_v<T>> {};

// The size in a stream of a sequence of plain elements.
template <class Sequence>
std::size_t vec_bytes(const Sequence& sequence) {
  return sequence.size() * sizeof(sequence.front()) + sizeof(std::uint64_t);
}

template <class T>
std::size_t pod_bytes(const T& value) {
  static_assert(is_pod_v<T>);
  return sizeof(value);
}

template <class T>
void load_pod(std::istream& stream, T& value) {
  static_assert(is_pod_v<T>);
  generic_loader(stream).visit(value);
}

template <class T>
void save_pod(std::ostream& stream, const T& value) {
  static_assert(is_pod_v<T>);
  generic_saver(stream).visit(value);
}

struct version_number {  // https://semver.org
  version_number(std::uint8_t first, std::uint8_t second, std::uint8_t third) : x(first), y(second), z(third) {}

  std::string to_string() const { return std::to_string(x) + '.' + std::to_string(y) + '.' + std::to_string(z); }

  template <class Visitor>
  void visit(Visitor& visitor) {
    visit_impl(visitor, *this);
  }
  template <class Visitor>
  void visit(Visitor& visitor) const {
    visit_impl(visitor, *this);
  }

  std::uint8_t x, y, z;

 private:
  template <class Visitor, class T>
  static void visit_impl(Visitor& visitor, T&& t) {  // NOLINT(cppcoreguidelines-missing-std-forward)
    visitor.visit(t.x);
    visitor.visit(t.y);
    visitor.visit(t.z);
  }
};

}  // namespace onecopy::streams

#ifndef ONECOPY_NO_ESSENTIALS_NAMESPACE
namespace essentials = onecopy::streams;
#endif
