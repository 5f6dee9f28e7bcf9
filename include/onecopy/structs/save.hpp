// Writes a C++ value as a file that opens in place, and computes its size beforehand.
//
//     save("index.oc", index);                                 // whole or not at all; Python sees its leaves by name
//     for (const auto& field : byte_size(index).fields) ...    // where the bytes are
//
// Threads: any; the value must not change during the call. Throws OsError as AtomicWriter does, FormatError for a type
// that cannot be stored.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/structs/schema.hpp"

namespace onecopy {

// The versions of a structure. A program that declares
//     template <> inline constexpr onecopy::Versions onecopy::versions_of<Index> = {.current = 3, .oldest = 1};
// writes 3 and opens 1 to 3; fields that an older file lacks keep their initialisers.
struct Versions {
  std::uint32_t current = 0;
  std::uint32_t oldest = current;
};

template <class T>
inline constexpr Versions versions_of{};

struct SaveOptions {
  bool checksum = true;  // for verify: CRC-32C of every 2 MiB
  // Texts of your own, under __metadata__.
  std::map<std::string, std::string, std::less<>> metadata{};  // NOLINT(readability-redundant-member-init)
};

struct SizeReport {
  struct FieldSize {
    std::string path;
    std::string type;
    std::uint64_t bytes = 0;
  };
  std::uint64_t bytes = 0;  // of all fields; a file has also a header, and fillers of less than 64 bytes in between
  std::vector<FieldSize> fields;

  // The bytes of a field and everything in it: of("rank") counts rank.words and rank.blocks.
  std::uint64_t of(std::string_view path) const noexcept;
};

// A line for each field, largest first.
std::string to_string(const SizeReport& report);

namespace structs {

std::uint64_t save_value(const std::filesystem::path& path, const Type& type, const void* value, std::uint32_t version,
                         const SaveOptions& options);
SizeReport size_of_value(const Type& type, const void* value);

}  // namespace structs

// Returns the size of the file in bytes. The target is replaced, never edited: processes with the old file open keep
// it. Throws OsError (no space, no permission, ...; the target is then unchanged) and FormatError (a visit() that does
// not list members, a header over 100 MB).
template <class T>
  requires(!std::convertible_to<const T&, std::span<const NamedArray>>)
std::uint64_t save(const std::filesystem::path& path, const T& value, const SaveOptions& options = {}) {
  return structs::save_value(path, structs::type_of<T>, &value, versions_of<T>.current, options);
}

// The fields that save() would write, with their sizes in bytes.
template <class T>
SizeReport byte_size(const T& value) {
  return structs::size_of_value(structs::type_of<T>, &value);
}

}  // namespace onecopy
