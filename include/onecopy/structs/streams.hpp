// streams: C++ values as packed bytes in the order of their fields, for code and files of the library `essentials`.
//
//     struct RankIndex {
//       template <class Visitor> void visit(Visitor& visitor) { visit_impl(visitor, *this); }
//       template <class Visitor> void visit(Visitor& visitor) const { visit_impl(visitor, *this); }
//      private:
//       template <class Visitor, class T> static void visit_impl(Visitor& visitor, T&& t) {
//         visitor.visit(t.size_);
//         visitor.visit(t.words_, "words");   // a name, for the sizer, may be there
//       }
//       std::uint64_t size_ = 0;
//       OwningSpan<std::uint64_t> words_;
//     };
//     streams::save(index, "index.bin");      // each returns the size in bytes
//     streams::mmap(index, "index.bin");      // spans look into the page cache; load() reads into private memory
//
// For files that exist, and programs that share them. In new code use `save` and `open` of this module: their files
// have names, types and checksums, everything in them is aligned, and a part can be opened without the rest. A stream
// has none of that: what it says is checked against its own length, so that damage cannot make a program read
// elsewhere, but other values are other values. A plain struct is taken as it comes, with any bool, enum or pointer
// inside.
//
// Sequences follow each other without gaps, so some addresses do not suit their type; those are copied when a stream is
// mapped, and LoadReport counts them. Spans keep the mapping alive. Spans inside the elements of another span do not:
// the outer one does, and a caller that takes an inner one out of it must keep it.
//
// Names are those of that library, hence their spelling. Objects: one thread at a time. See wire_format.hpp for the
// bytes, loader.hpp for errors.
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

// Reads a file into private memory. Returns the bytes read; `report` says more.
template <class T>
std::size_t load(T& value, const std::filesystem::path& path, LoadReport* report = nullptr) {
  loader from(path);
  from.visit(value);
  if (report != nullptr) *report = from.report();
  return from.bytes();
}

// Maps a file, once, and makes OwningSpans of it. Returns the bytes that the value takes of it.
template <class T>
std::size_t mmap(T& value, const std::filesystem::path& path, LoadReport* report = nullptr) {
  const auto mapping = std::make_shared<const Mapping>(Mapping::open(path));
  generic_loader from(mapping->bytes(), mapping, path.string());
  from.visit(value);
  expect_whole(*mapping);
  if (report != nullptr) *report = from.report();
  return from.bytes();
}

// Writes a file that appears whole or not at all; who has the old one mapped keeps it. Returns its size.
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

// With a visitor of one's own, which is made of a path and has bytes(): visit<loader>(value, path).
template <class Visitor, class T>
std::size_t visit(T&& value, const std::filesystem::path& path) {  // NOLINT(cppcoreguidelines-missing-std-forward)
  Visitor visitor(path.c_str());
  visitor.visit(value);
  return visitor.bytes();
}

// With the allocator that the value has: `contiguous_memory_allocator& get_allocator()`.
template <class T>
std::size_t load_with_custom_memory_allocation(T& value, const std::filesystem::path& path) {
  return value.get_allocator().allocate(value, path);
}

// Prints which field takes how many bytes. Returns the size of the value in a stream.
template <class T, class Device>
std::size_t print_size(T& value, Device& device) {
  sizer tree(demangle(typeid(T).name()));
  tree.visit(value);
  tree.print(device);
  return tree.bytes();
}

}  // namespace onecopy::streams
