// streams: C++ values as packed bytes in the order of their fields, for code and files of the library `essentials`.
//
//     struct RankIndex {
//       template <class Visitor> void visit(Visitor& visitor) { visit_impl(visitor, *this); }
//       template <class Visitor> void visit(Visitor& visitor) const { visit_impl(visitor, *this); }
//      private:
//       template <class Visitor, class T> static void visit_impl(Visitor& visitor, T&& t) {
//         visitor.visit(t.size_);
//         visitor.visit(t.words_, "words");   // an optional name, for the sizer
//       }
//       std::uint64_t size_ = 0;
//       OwningSpan<std::uint64_t> words_;
//     };
//     streams::save(index, "index.bin");      // each returns the size in bytes
//     streams::mmap(index, "index.bin");      // spans look into the page cache; load() reads into private memory
//
// For existing files and the programs that share them. In new code use `save` and `open` of this module: their files
// have names, types and checksums, all data in them is aligned, and a part can be opened without the rest. A stream has
// none of that: counts are checked against its length, so that damage cannot cause a read outside it, but changed
// values are not detected. A plain struct is copied as it is, with any bool, enum or pointer in it.
//
// Sequences follow each other without gaps, so some are misaligned for their type; those are copied when a stream is
// mapped, and LoadReport counts them. Spans keep the mapping alive. Spans inside the elements of another span do not:
// the outer one does, and a caller that copies an inner one must keep the outer one.
//
// Names are those of the library essentials, hence their spelling. Objects: one thread at a time. See wire_format.hpp
// for the bytes, loader.hpp for errors.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <typeinfo>

#include "onecopy/files/mapping.hpp"
#include "onecopy/structs/owning_span.hpp"
#include "onecopy/structs/streams/contiguous_memory.hpp"
#include "onecopy/structs/streams/file_streams.hpp"
#include "onecopy/structs/streams/loader.hpp"
#include "onecopy/structs/streams/saver.hpp"
#include "onecopy/structs/streams/sizer.hpp"

namespace onecopy::streams {

// Reads a file into private memory. Returns the number of bytes read; `report` has more details.
template <class T>
std::size_t load(T& value, const std::filesystem::path& path, LoadReport* report = nullptr) {
  loader from(path);
  from.visit(value);
  if (report != nullptr) *report = from.report();
  return from.bytes();
}

// Maps a file, once, and makes OwningSpans of it. Returns the number of bytes of the value.
template <class T>
std::size_t mmap(T& value, const std::filesystem::path& path, LoadReport* report = nullptr) {
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
  generic_loader from(mapping->bytes(), mapping, path.string());
  from.visit(value);
  expect_whole(*mapping);
  if (report != nullptr) *report = from.report();
  return from.bytes();
}

// Writes a file that appears complete or not at all; processes with the old one mapped keep it. Returns its size.
template <class T>
std::size_t save(const T& value, const std::filesystem::path& path) {
  NullOutput nowhere;
  generic_saver counting(nowhere);
  counting.visit(value);
  FileOutput file(path, counting.bytes());
  generic_saver(file, path.string()).visit(value);
  file.commit();
  return counting.bytes();
}

// With a custom visitor, which is constructed from a path and has bytes(): visit<loader>(value, path).
template <class Visitor, class T>
std::size_t visit(T&& value, const std::filesystem::path& path) {  // NOLINT(cppcoreguidelines-missing-std-forward)
  Visitor visitor(path.c_str());
  visitor.visit(value);
  return visitor.bytes();
}

// With the allocator of the value: `contiguous_memory_allocator& get_allocator()`.
template <class T>
std::size_t load_with_custom_memory_allocation(T& value, const std::filesystem::path& path) {
  return value.get_allocator().allocate(value, path);
}

// Prints the size of each field. Returns the size of the value in a stream.
template <class T, class Device>
std::size_t print_size(T& value, Device& device) {
  sizer tree(demangle(typeid(T).name()));
  tree.visit(value);
  tree.print(device);
  return tree.bytes();
}

}  // namespace onecopy::streams
