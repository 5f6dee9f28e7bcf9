// The C interface: each function checks its arguments, calls the C++ library, and catches everything.
#include "onecopy/onecopy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/base/version.hpp"
#include "onecopy/files/guard.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/store/default_folder.hpp"
#include "onecopy/store/store.hpp"

using namespace onecopy;

struct onecopy_file {
  std::shared_ptr<const Mapping> mapping;
  std::optional<ArrayFile> arrays;     // none: raw
  std::deque<std::string> texts;       // C requires a NUL at the end, which names in a header lack
  std::vector<onecopy_entry> entries;  // all, also fillers
  std::vector<std::size_t> shown;      // of these, the ones that are not fillers
  bool built = false;
};

namespace {

static_assert(ONECOPY_NOT_THIS_FORMAT == FormatError::not_this_format + 1 &&
              ONECOPY_TRUNCATED == FormatError::truncated + 1 && ONECOPY_TOO_COSTLY == FormatError::too_costly + 1);

struct BuildFailed : std::runtime_error {
  BuildFailed(int returned, const std::string& message) : std::runtime_error(message), status(returned) {}
  int status;
};

// The last failure of a thread: no memory is needed to report it, and nothing is freed when the thread ends.
thread_local constinit onecopy_error last{sizeof(onecopy_error), ONECOPY_OK, 0, 0, -1, "", ""};
thread_local constinit std::array<char, 1024> message_of_last{};
thread_local constinit std::array<char, 4096> path_of_last{};

template <std::size_t n>
const char* put(std::array<char, n>& into, std::string_view text) noexcept {
  into[text.copy(into.data(), n - 1)] = '\0';
  return into.data();
}

std::int64_t number_of(const std::optional<std::uint64_t>& value) noexcept {
  return value ? static_cast<std::int64_t>(*value) : -1;
}

int record(std::int32_t code, const char* message, std::string_view path = {}, std::int64_t number = 0,
           std::int32_t kind = 0, std::optional<std::uint64_t> offset = {}) noexcept {
  last = {sizeof last, code, kind, number, number_of(offset), put(message_of_last, message), put(path_of_last, path)};
  return code;
}

// In a catch block. `path`: of the file that was given, for errors without one.
int record_current(std::string_view path) noexcept {
  try {
    throw;
  } catch (const DataLost& error) {
    return record(ONECOPY_DATA_LOST, error.what(), error.path(), error.code(), 0, error.offset());
  } catch (const FileChanged& error) {
    return record(ONECOPY_FILE_CHANGED, error.what(), error.path(), error.code());
  } catch (const OsError& error) {
    return record(ONECOPY_SYSTEM, error.what(), error.path(), error.code());
  } catch (const FormatError& error) {
    const int code = dynamic_cast<const ChecksumError*>(&error) != nullptr ? ONECOPY_CHECKSUM
                     : dynamic_cast<const NoChecksum*>(&error) != nullptr  ? ONECOPY_NO_CHECKSUM
                                                                           : ONECOPY_FORMAT;
    return record(code, error.what(), error.path(), 0, error.kind() + 1, error.offset());
  } catch (const BuildFailed& error) {
    return record(ONECOPY_CALLBACK, error.what(), path, error.status);
  } catch (const std::out_of_range& error) {
    return record(ONECOPY_NOT_FOUND, error.what(), path);
  } catch (const std::invalid_argument& error) {
    return record(ONECOPY_ARGUMENT, error.what(), path);
  } catch (const std::bad_alloc&) {
    return record(ONECOPY_MEMORY, "out of memory", path);
  } catch (const std::exception& error) {
    return record(ONECOPY_INTERNAL, error.what(), path);
  } catch (...) {
    return record(ONECOPY_INTERNAL, "an unknown exception occurred", path);
  }
}

template <class Call>
int checked(const Call& call, std::string_view path = {}) noexcept {
  try {
    call();
    return ONECOPY_OK;
  } catch (...) {
    return record_current(path);
  }
}

void expect(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

template <class T>
const T& given(const T* pointer, const char* name) {
  if (pointer == nullptr) throw std::invalid_argument(std::string(name) + " is NULL");
  return *pointer;
}

template <class Call>
int checked_on(const onecopy_file* file, const Call& call) noexcept {
  if (file == nullptr) return record(ONECOPY_ARGUMENT, "file is NULL");
  const auto call_whole = [&] {
    expect_whole(*file->mapping);
    call(*file);
  };
  return checked(call_whole, file->mapping->path());
}

template <class T>
std::size_t size_of(const T* structure) {
  const std::size_t size = given(structure, "a struct").size;
  expect(size >= sizeof(size) && size <= 65536, "the field `size` of a struct is not set");
  return size;
}

// A struct of the caller, whose version may have fewer or more fields than this one.
template <class T>
T taken(const T* structure) {
  T known{};
  if (structure == nullptr) return known;
  const std::size_t size = size_of(structure);
  std::memcpy(&known, structure, std::min(size, sizeof(T)));
  const auto* const begin = reinterpret_cast<const char*>(structure);
  expect(std::all_of(begin + std::min(size, sizeof(T)), begin + size, [](char byte) { return byte == 0; }),
         "a struct has a field that this version of the library does not support");
  return known;
}

template <class T>
void give(T* structure, T value) {
  const std::size_t size = size_of(structure);
  value.size = size;
  std::memcpy(static_cast<void*>(structure), &value, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(structure) + sizeof(T), 0, size - sizeof(T));
}

const ArrayFile& arrays_of(const onecopy_file& file) {
  if (!file.arrays) throw std::invalid_argument("the file was opened raw, so it has no arrays and no checksums");
  return *file.arrays;
}

std::optional<std::vector<std::string>> texts_of(const char* const* names, std::uint64_t count) {
  if (names == nullptr) return std::nullopt;
  expect(count <= PTRDIFF_MAX / sizeof *names, "the number of names is too large");
  std::vector<std::string> texts(count);
  for (std::uint64_t i = 0; i < count; ++i) texts[i] = &given(names[i], "a name");
  return texts;
}

std::vector<ByteRange> ranges_of(const onecopy_file& file, const char* const* names, std::uint64_t count) {
  if (names == nullptr) return {{0, file.mapping->bytes().size()}};
  return arrays_of(file).ranges(texts_of(names, count));
}

const char* text_of(std::string_view literal) noexcept { return literal.data(); }

MappingOptions mapping_options(const onecopy_open_options& options) {
  expect(options.mode == ONECOPY_MAP || options.mode == ONECOPY_COPY, "mode must be ONECOPY_MAP or ONECOPY_COPY");
  return {.mode = options.mode == ONECOPY_COPY ? Mode::copy : Mode::map};
}

std::unique_ptr<onecopy_file> file_of(Mapping mapping) {
  auto file = std::make_unique<onecopy_file>();
  file->mapping = std::make_shared<const Mapping>(std::move(mapping));
  return file;
}

std::unique_ptr<onecopy_file> file_of(const ArrayFile& arrays) {
  auto file = std::make_unique<onecopy_file>();
  file->mapping = arrays.mapping();
  file->arrays = arrays;
  const Index& index = file->arrays->index();
  for (const Entry& entry : index.entries()) {
    if (!index.is_filler(entry)) file->shown.push_back(file->entries.size());
    const bool raw = !entry.raw_type.empty();
    file->entries.push_back({.name = file->texts.emplace_back(entry.name).c_str(),
                             .dtype = file->texts.emplace_back(raw ? entry.raw_type : to_string(entry.dtype)).c_str(),
                             .shape = entry.shape.data(),
                             .strides = entry.strides.empty() ? nullptr : entry.strides.data(),
                             .data = file->arrays->bytes(entry).data(),
                             .name_length = entry.name.size(),
                             .offset = entry.offset,
                             .bytes = entry.length,
                             .item_bits = raw ? 0 : bits(entry.dtype),
                             .rank = static_cast<std::uint32_t>(entry.shape.size())});
  }
  return file;
}

}  // namespace

const onecopy_error* onecopy_last_error() { return &last; }

const char* onecopy_version() { return text_of(version()); }

int onecopy_open(const char* path, const onecopy_open_options* options, onecopy_file** file) {
  return checked([&] {
    const std::filesystem::path name(&given(path, "path"));
    (void)given(file, "file");
    const auto known = taken(options);
    const auto how = mapping_options(known);
    auto opened = known.raw != 0 ? file_of(Mapping::open(name, how)) : file_of(ArrayFile::open(name, how));
    mark_if_artefact(opened->mapping->descriptor());
    *file = opened.release();
  });
}

void onecopy_close(onecopy_file* file) { delete file; }  // NOLINT(misc-const-correctness): the caller owns it

int onecopy_get_info(const onecopy_file* file, onecopy_info* info) {
  return checked_on(file, [&](const onecopy_file& opened) {
    const Index* const index = opened.arrays ? &opened.arrays->index() : nullptr;
    give(info, {.path = opened.mapping->path().c_str(),
                .format = text_of(index != nullptr ? index->container() : "raw"),
                .kind = text_of(to_string(index != nullptr ? index->kind() : Kind::foreign)),
                .data = opened.mapping->bytes().data(),
                .bytes = opened.mapping->bytes().size(),
                .entries = opened.shown.size(),
                .mode = opened.mapping->mode() == Mode::copy ? ONECOPY_COPY : ONECOPY_MAP,
                .built = opened.built ? 1 : 0});
  });
}

int onecopy_get_entry(const onecopy_file* file, uint64_t number, onecopy_entry* entry) {
  return checked_on(file, [&](const onecopy_file& opened) {
    if (number >= opened.shown.size())
      throw std::out_of_range(opened.mapping->path() + ": there is no array with the number " + std::to_string(number));
    give(entry, opened.entries[opened.shown[number]]);
  });
}

int onecopy_find_entry(const onecopy_file* file, const char* name, onecopy_entry* entry) {
  return checked_on(file, [&](const onecopy_file& opened) {
    const Entry& found = arrays_of(opened).entry(&given(name, "name"));
    give(entry, opened.entries[static_cast<std::size_t>(&found - opened.arrays->index().entries().data())]);
  });
}

int onecopy_warm(const onecopy_file* file, const onecopy_warm_options* options, onecopy_warm_report* report) {
  return checked_on(file, [&](const onecopy_file& opened) {
    const auto known = taken(options);
    expect(known.huge >= ONECOPY_AUTO && known.huge <= ONECOPY_NO,
           "huge must be ONECOPY_AUTO, ONECOPY_YES or ONECOPY_NO");
    auto ranges = ranges_of(opened, known.names, known.count);
    WarmOptions how{.threads = known.threads, .huge = static_cast<Huge>(known.huge), .in_order = known.in_order != 0};
    if (known.budget != 0) how.budget = known.budget;
    if (known.verify != 0) {
      how.inspector = make_verifier(arrays_of(opened));
      ranges = verified_ranges(arrays_of(opened), ranges);
    }
    const WarmReport done = warm(*opened.mapping, ranges, how);
    if (report == nullptr) return;
    onecopy_warm_report value{.bytes = done.bytes,
                              .filled = done.filled,
                              .verified = number_of(done.verified),
                              .cached_before = number_of(done.cached_before),
                              .cached_after = number_of(done.cached_after),
                              .huge_share = done.huge_share.value_or(-1),
                              .seconds = done.seconds,
                              .mechanism = text_of(to_string(done.mechanism)),
                              .threads = done.threads,
                              .complete = done.complete ? 1 : 0};
    done.reason.copy(static_cast<char*>(value.reason), sizeof value.reason - 1);
    give(report, value);
  });
}

int onecopy_verify(const onecopy_file* file, const char* const* names, uint64_t count, uint64_t* bytes) {
  return checked_on(file, [&](const onecopy_file& opened) {
    const auto texts = texts_of(names, count);
    const auto report = texts ? verify(arrays_of(opened), *texts) : verify(arrays_of(opened));
    if (bytes != nullptr) *bytes = report.bytes;
  });
}

int onecopy_get_residency(const onecopy_file* file, const char* const* names, uint64_t count,
                          onecopy_residency* residency) {
  return checked_on(file, [&](const onecopy_file& opened) {
    const auto report = onecopy::residency(*opened.mapping, ranges_of(opened, names, count));
    give(residency, {0, report.bytes, number_of(report.cached), number_of(report.dirty), number_of(report.mapped),
                     number_of(report.huge), text_of(to_string(report.source))});
  });
}

int onecopy_guard() { return checked(guard); }

int onecopy_check() { return checked(check); }

int onecopy_get_or_build(const char* key, onecopy_build build, void* context, const onecopy_build_options* options,
                         onecopy_file** file) {
  return checked([&] {
    const std::string text = &given(key, "key");
    expect(build != nullptr, "build is NULL");
    (void)given(file, "file");
    const auto known = taken(options);
    const auto open = taken(known.open);
    const auto how = mapping_options(open);
    expect(known.timeout >= 0 && known.timeout < 1e9, "timeout must be a number of seconds that is not negative");
    BuildOptions building{.source = known.source != nullptr ? known.source : ""};
    const std::chrono::duration<double> patience(known.timeout);
    if (known.timeout > 0) building.patience = std::chrono::ceil<std::chrono::milliseconds>(patience);
    const auto store = Store::open(known.folder != nullptr ? known.folder : default_folder(Place::disk).path);
    const auto call = [&](const std::filesystem::path& target) {
      if (const int status = build(target.c_str(), context); status != 0)
        throw BuildFailed(status, concat("build '", text, "': the build function returned ", status));
    };
    const Artefact artefact = store.get_or_build(text, call, building);
    auto opened = open.raw != 0
                      ? file_of(artefact.open(how))
                      : file_of(ArrayFile::from_descriptor(artefact.file->descriptor(), artefact.path.string(), how));
    opened->built = artefact.built;
    *file = opened.release();
  });
}
