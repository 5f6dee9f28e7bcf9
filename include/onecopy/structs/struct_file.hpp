// A C++ value in a file, opened in place.
//
//     const auto file = onecopy::open<Index>("index.oc");      // milliseconds, whatever its size
//     file->rank.blocks[17];                                   // read from the page cache when it is touched
//     file.warm<&Index::rank>();                               // this part now, at the device's speed
//
// Opening compares the file's schema with the program's, checks every bound, reads single numbers, and makes the
// objects of sequences whose elements own memory. Spans of plain elements refer to the mapping. Strings, std::vector
// and std::optional own their memory, so their bytes are copied: report().private_bytes.
//
// Ownership: a StructFile is a handle; copies share value and mapping. A span taken out of it by value, `auto words =
// file->rank.words`, keeps the mapping alive on its own; a span inside an element of another, file->subs[3].words,
// borrows from that one. Threads: all members may be called by any number of threads.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "onecopy/structs/member.hpp"
#include "onecopy/structs/save.hpp"

namespace onecopy {

struct OpenOptions {
  Mode mode = Mode::map;  // copy: one private block, in huge pages where there are any, and all spans point into it
  bool warm = false;      // wait until everything is in memory
  bool verify = false;    // compare checksums before any byte is used; with `warm` in the same pass
  bool collapse = false;  // put memory files and copies into 2 MiB pages, for every process that maps them
  unsigned threads = 0;   // of copying, warming and verifying; 0: 8
};

// The result of opening.
struct OpenReport {
  Mode mode = Mode::map;
  std::uint32_t version = 0;           // of the file's structure
  std::uint64_t bytes = 0;             // of the file, or of the part that was opened
  std::uint64_t viewed_bytes = 0;      // viewed in place
  std::uint64_t private_bytes = 0;     // copied for this object: elements that own memory, strings, vectors
  std::uint64_t objects = 0;           // elements that were constructed, because they own memory
  std::vector<std::string> defaulted;  // fields that are missing in the file of an older version
  std::optional<WarmReport> warmed;
  std::optional<VerifyReport> verified;
  std::optional<CollapseReport> collapsed;
  double seconds = 0;  // all of it
};

// A sentence or two.
std::string to_string(const OpenReport& report);

namespace structs {

// The part of a file that is opened: the value of a type under a path.
struct Request {
  const Type& type;
  std::string path;  // empty: the whole file
  Versions versions;
};

// An open file, and the start of the opening, whose duration the report includes.
struct OpenedFile {
  OpenedFile(ArrayFile opened, std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now())
      : file(std::move(opened)), since(begin) {}  // implicit: with an open file the opening begins now
  ArrayFile file;
  std::chrono::steady_clock::time_point since;
};

OpenReport open_value(const ArrayFile& file, const Request& request, const OpenOptions& options, void* value);
OpenedFile open_arrays(const std::filesystem::path& path, const OpenOptions& options);
OpenedFile open_arrays(int descriptor, std::string name, const OpenOptions& options);
std::vector<ByteRange> ranges_of(const ArrayFile& file, const std::string& root, std::string_view path);
// Empty: the whole file, including fillers.
std::optional<std::vector<std::string>> names_of(const ArrayFile& file, const std::string& root, std::string_view path);

}  // namespace structs

template <class T>
class StructFile {
 public:
  const T& value() const& noexcept ONECOPY_LIFETIMEBOUND { return state_->value; }
  const T& value() const&& = delete;
  const T& operator*() const& noexcept ONECOPY_LIFETIMEBOUND { return state_->value; }
  const T& operator*() const&& = delete;
  const T* operator->() const& noexcept ONECOPY_LIFETIMEBOUND { return &state_->value; }
  const T* operator->() const&& = delete;

  // A field, or a nested field: get<&Index::rank, &Rank::blocks>().
  template <auto... members>
  const auto& get() const& noexcept ONECOPY_LIFETIMEBOUND {
    return structs::follow<members...>(state_->value);
  }
  template <auto... members>
  const auto& get() const&& = delete;

  const OpenReport& report() const& noexcept ONECOPY_LIFETIMEBOUND { return state_->report; }
  const OpenReport& report() const&& = delete;
  const ArrayFile& arrays() const& noexcept ONECOPY_LIFETIMEBOUND { return state_->file; }
  const ArrayFile& arrays() const&& = delete;
  const std::shared_ptr<const Mapping>& mapping() const& noexcept ONECOPY_LIFETIMEBOUND {
    return state_->file.mapping();
  }
  const std::shared_ptr<const Mapping>& mapping() const&& = delete;
  int descriptor() const noexcept { return state_->file.mapping()->descriptor(); }  // owned by the file

  // The byte ranges of a field in the file: for warm(), WarmJob, evict(), pin() and residency(). By path
  // ("rank.blocks"; empty: all that was opened) or by member. Throws std::out_of_range for an unknown path.
  std::vector<ByteRange> ranges(std::string_view path = {}) const {
    return structs::ranges_of(state_->file, state_->path, path);
  }
  template <auto... members>
    requires(sizeof...(members) > 0)
  std::vector<ByteRange> ranges() const {
    return ranges(path<members...>());
  }

  WarmReport warm(std::string_view path = {}, const WarmOptions& options = {}) const {
    return onecopy::warm(*mapping_(), ranges(path), options);
  }
  template <auto... members>
    requires(sizeof...(members) > 0)
  WarmReport warm(const WarmOptions& options = {}) const {
    return warm(path<members...>(), options);
  }

  // Warms in the background.
  WarmJob start_warm(std::string_view path = {}, const WarmOptions& options = {}) const {
    return WarmJob::start(mapping_(), ranges(path), options);
  }
  template <auto... members>
    requires(sizeof...(members) > 0)
  WarmJob start_warm(const WarmOptions& options = {}) const {
    return start_warm(path<members...>(), options);
  }

  // For queries of data that is larger than memory: read the comment in page_cache.hpp first.
  Outcome advise_random(std::string_view path = {}) const { return onecopy::advise_random(*mapping_(), ranges(path)); }
  template <auto... members>
    requires(sizeof...(members) > 0)
  Outcome advise_random() const {
    return advise_random(path<members...>());
  }

  EvictReport evict(std::string_view path = {}) const { return onecopy::evict(*mapping_(), ranges(path)); }
  template <auto... members>
    requires(sizeof...(members) > 0)
  EvictReport evict() const {
    return evict(path<members...>());
  }

  Residency residency(std::string_view path = {}) const { return onecopy::residency(*mapping_(), ranges(path)); }
  template <auto... members>
    requires(sizeof...(members) > 0)
  Residency residency() const {
    return residency(path<members...>());
  }

  // Compares checksums. Throws ChecksumError, which names block and fields; NoChecksum; DataLost.
  VerifyReport verify(std::string_view path = {}, unsigned threads = 0) const {
    return onecopy::verify(state_->file, structs::names_of(state_->file, state_->path, path), threads);
  }
  template <auto... members>
    requires(sizeof...(members) > 0)
  VerifyReport verify(unsigned threads = 0) const {
    return verify(path<members...>(), threads);
  }

  // "rank.blocks", relative to the path of the opened part.
  template <auto... members>
  std::string path() const {
    return structs::path_through<members...>(state_->value);
  }

  static StructFile open(structs::OpenedFile opened, std::string path, Versions versions, const OpenOptions& options) {
    auto state = std::make_shared<State>(std::move(opened.file), std::move(path));
    state->report =
        structs::open_value(state->file, {structs::type_of<T>, state->path, versions}, options, &state->value);
    state->report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - opened.since).count();
    return StructFile(std::move(state));
  }

 private:
  struct State {
    State(ArrayFile opened, std::string at) : file(std::move(opened)), path(std::move(at)) {}
    ArrayFile file;
    std::string path;
    T value{};
    OpenReport report;
  };
  explicit StructFile(std::shared_ptr<const State> state) noexcept : state_(std::move(state)) {}
  const std::shared_ptr<const Mapping>& mapping_() const noexcept {
    const ArrayFile& file = state_->file;
    return file.mapping();
  }

  std::shared_ptr<const State> state_;
};

// Throws OsError; FormatError if the file is damaged, is not a structure, or is a different one (the message shows both
// sides of the first field that differs); ChecksumError and NoChecksum (`verify`); DataLost.
template <std::default_initializable T>
StructFile<T> open(const std::filesystem::path& path, const OpenOptions& options = {}) {
  return StructFile<T>::open(structs::open_arrays(path, options), {}, versions_of<T>, options);
}

// One field, as if it were a file of its own: nothing else is read, compared or made.
//     const auto rank = onecopy::open<&Index::rank>("index.oc");
template <auto... members>
  requires(sizeof...(members) > 0)
auto open(const std::filesystem::path& path, const OpenOptions& options = {}) {
  using Whole = typename structs::LastMember<members...>::class_type;
  using Part = typename structs::LastMember<members...>::field_type;
  return StructFile<Part>::open(structs::open_arrays(path, options), structs::path_through<members...>(Whole{}),
                                versions_of<Whole>, options);
}

}  // namespace onecopy
