// A C++ value for several processes, without a file on any disk.
//
//     const auto shared = onecopy::share(index);                 // in a sealed memory file; 2 MiB pages where possible
//     pass_on(shared.descriptor());                              // inherited, over a socket, or /proc/<pid>/fd/<n>
//
//     const auto there = onecopy::open<Index>(descriptor);       // in another process: the same type, the same checks
//
// The memory is freed with the last process that maps it, in whatever order processes end. See MemoryFileWriter.
// Threads: any; the value must not change during the call. Throws OsError as MemoryFileWriter does, FormatError for a
// type that cannot be stored.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "onecopy/structs/struct_file.hpp"

namespace onecopy {

struct ShareOptions {
  std::string name = "value";  // in errors and /proc/<pid>/maps; not a path
  bool collapse = true;        // into 2 MiB pages; report().collapsed has the outcome
  SaveOptions save{};
};

namespace structs {

ArrayFile share_value(const Type& type, const void* value, std::uint32_t version, const ShareOptions& options);

}  // namespace structs

// Throws OsError if memory is insufficient (before a byte is written), and the errors of save().
template <class T>
StructFile<T> share(const T& value, const ShareOptions& options = {}) {
  auto file = structs::share_value(structs::type_of<T>, &value, versions_of<T>.current, options);
  OpenOptions opening;
  opening.collapse = options.collapse;
  return StructFile<T>::open(std::move(file), {}, versions_of<T>, opening);
}

// The value in an open file, which may be a memory file of another process. The descriptor is duplicated, and stays the
// caller's. `name` stands for the path in errors. Throws the errors of open<T>(path).
template <std::default_initializable T>
StructFile<T> open(int descriptor, std::string name = {}, const OpenOptions& options = {}) {
  if (name.empty()) name = "descriptor " + std::to_string(descriptor);
  return StructFile<T>::open(structs::open_arrays(descriptor, std::move(name), options), {}, versions_of<T>, options);
}

}  // namespace onecopy
