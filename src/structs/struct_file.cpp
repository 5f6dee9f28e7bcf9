#include "onecopy/structs/struct_file.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "onecopy/base/error.hpp"
#include "structs/expectation.hpp"
#include "structs/walk.hpp"

namespace onecopy {
namespace structs {
namespace {

// State that the spans of an opened value share.
struct Owner {
  std::shared_ptr<const Mapping> mapping;
  std::vector<std::shared_ptr<void>> elements;  // of sequences whose elements own memory
};

// The place of a value: in the object, a number has no axis in the file; in a sequence it is a row of a column.
struct Where {
  std::string path;
  bool column = false;
  bool borrowed = false;  // inside an OwningSpan, whose own owner keeps everything alive
};

class Builder {
 public:
  Builder(const ArrayFile& file, const Expectation& expectation, OpenReport& report)
      : file_(file), expectation_(expectation), report_(report), owner_(std::make_shared<Owner>()) {
    owner_->mapping = file.mapping();
  }

  void build(const Type& type, const Places& places, const Where& where) {
    if (expectation_.is_missing(named(where.path))) return;
    if (type.form == Form::record) return record(type, places, where);
    if (type.form == Form::sequence) return sequence(type, places, where);
    if (type.fixed) return values(type, places, named(where.path));
    build(*type.element, spread(type, places), {of_elements(where.path, type), true, where.borrowed});
  }

 private:
  void record(const Type& type, const Places& places, const Where& where) {
    if (places.count == 0) return;
    for (const auto& field : fields_in(type, places[0]))
      build(*field.type, places.shifted(field.offset), {join(where.path, field.name), where.column, where.borrowed});
  }

  void values(const Type& type, const Places& places, const std::string& name) {
    if (places.count == 1) {
      // By pread: a truncated file must not raise SIGBUS while it is opened.
      const std::span<std::byte> place(places[0], type.size);
      file_.mapping()->read(expectation_.entry(name).offset, place);
      return expect_bools(type, place, name);
    }
    const Bytes bytes = bytes_of(name);
    for (std::uint64_t i = 0; i < places.count; ++i) {
      std::memcpy(places[i], bytes.data() + i * type.size, type.size);
      expect_bools(type, {places[i], type.size}, name);
    }
  }

  void sequence(const Type& type, const Places& places, const Where& where) {
    const auto& ops = *type.sequence;
    const auto held =
        where.column ? offsets_of(where.path, places.count) : std::vector<std::uint64_t>{0, total_of(type, where.path)};
    const std::uint64_t* offsets = held.data();
    const std::uint64_t total = offsets[places.count];
    if (type.at_most_one) expect_at_most_one(offsets, places.count, where.path);
    if (ops.resize != nullptr) return owned(type, places, where, offsets);
    const auto owner = where.borrowed ? nullptr : std::shared_ptr<const void>(owner_);
    if (type.element->fixed) {
      const Bytes bytes = bytes_of(named(where.path));
      report_.viewed_bytes += bytes.size();
      return ops.look(places, bytes.data(), offsets, owner);
    }
    auto elements = ops.allocate(total);
    auto* first = static_cast<std::byte*>(elements.get());
    owner_->elements.push_back(std::move(elements));
    count_objects(*type.element, total);
    build(*type.element, {first, type.element->size, total, nullptr, 0}, {of_elements(where.path, type), true, true});
    ops.look(places, first, offsets, owner);
  }

  // Sequences that own their elements: copies.
  void owned(const Type& type, const Places& places, const Where& where, const std::uint64_t* offsets) {
    const auto& ops = *type.sequence;
    const std::size_t size = type.element->size;
    std::vector<std::byte*> elements;
    const Bytes bytes = type.element->fixed ? bytes_of(named(where.path)) : Bytes();
    for (std::uint64_t i = 0; i < places.count; ++i) {
      const std::uint64_t count = offsets[i + 1] - offsets[i];
      std::byte* first = ops.resize(places[i], count);
      if (type.element->fixed) {
        if (count != 0) std::memcpy(first, bytes.data() + offsets[i] * size, count * size);
        expect_bools(*type.element, {first, count * size}, where.path);
      } else {
        for (std::uint64_t k = 0; k < count; ++k) elements.push_back(first + k * size);
      }
    }
    const std::uint64_t total = offsets[places.count];
    if (type.element->fixed) {
      report_.private_bytes += total * size;
      return;
    }
    count_objects(*type.element, total);
    build(*type.element, {nullptr, 0, total, std::make_shared<const std::vector<std::byte*>>(std::move(elements)), 0},
          {of_elements(where.path, type), true, where.borrowed});
  }

  void count_objects(const Type& type, std::uint64_t count) {
    report_.objects += count;
    report_.private_bytes += count * type.size;
  }

  std::uint64_t total_of(const Type& type, const std::string& path) const {
    if (type.element->fixed) return expectation_.entry(named(path)).shape.front();
    return expectation_.number(named(path, ".count"));
  }

  // The offsets of `count` sequences in a column, in private memory: a write into the file between a check and its use
  // must not cause a read outside it. The last one was compared with the arrays of the elements.
  std::vector<std::uint64_t> offsets_of(const std::string& path, std::uint64_t count) const {
    const std::string name = named(path, ".offsets");
    std::vector<std::uint64_t> offsets(count + 1);
    std::memcpy(offsets.data(), bytes_of(name).data(), offsets.size() * sizeof(std::uint64_t));
    if (offsets.front() != 0 || !std::ranges::is_sorted(offsets))
      reject(FormatError::inconsistent, "'" + name + "': the offsets do not increase from 0");
    if (offsets.back() != expectation_.number(name))
      reject(FormatError::inconsistent, "'" + name + "': the file was modified while it was opened");
    return offsets;
  }

  static void expect_at_most_one(const std::uint64_t* offsets, std::uint64_t count, const std::string& path) {
    for (std::uint64_t i = 0; i < count; ++i)
      if (offsets[i + 1] - offsets[i] > 1)
        reject(FormatError::inconsistent,
               "'" + path + "': the file has more than one value, but the program has a std::optional");
  }

  static void expect_bools(const Type& type, Bytes bytes, const std::string& name) {
    if (dtype_of(type) != DType::boolean) return;
    for (const std::byte byte : bytes)
      if (std::to_integer<unsigned>(byte) > 1)
        reject(FormatError::inconsistent, "'" + name + "': a bool is neither 0 nor 1");
  }

  Bytes bytes_of(const std::string& name) const { return file_.bytes(expectation_.entry(name)); }

  const ArrayFile& file_;
  const Expectation& expectation_;
  OpenReport& report_;
  std::shared_ptr<Owner> owner_;
};

MappingOptions mapping_of(const OpenOptions& options) {
  MappingOptions mapping;
  mapping.mode = options.mode;
  mapping.threads = options.threads;
  return mapping;
}

void make_resident(const ArrayFile& file, const std::string& path, const OpenOptions& options, OpenReport& report) {
  if (options.collapse) report.collapsed = collapse(*file.mapping());
  if (options.verify && !options.warm) report.verified = verify(file, names_of(file, path, {}), options.threads);
  if (!options.warm) return;
  WarmOptions warming;
  warming.threads = options.threads;
  auto ranges = ranges_of(file, path, {});
  if (options.verify) {
    ranges = verified_ranges(file, ranges);
    warming.inspector = make_verifier(file);
  }
  report.warmed = warm(*file.mapping(), ranges, warming);
}

}  // namespace

OpenedFile open_arrays(const std::filesystem::path& path, const OpenOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  return {ArrayFile::open(path, mapping_of(options)), begin};
}

OpenedFile open_arrays(int descriptor, std::string name, const OpenOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  return {ArrayFile::from_descriptor(descriptor, std::move(name), mapping_of(options)), begin};
}

OpenReport open_value(const ArrayFile& file, const Request& request, const OpenOptions& options, void* value) {
  OpenReport report;
  report.mode = file.mapping()->mode();
  try {
    const Expectation expectation(file, request.type, request.path, value, request.versions);
    report.version = expectation.version();
    report.defaulted = expectation.missing();
    for (const auto& range : ranges_of(file, request.path, {})) report.bytes += range.length;
    make_resident(file, request.path, options, report);
    // Read at the device's speed; a file that was truncated since is an error here, not a signal below.
    if (!expectation.columns().empty() && report.mode == Mode::map && !options.warm)
      static_cast<void>(warm(*file.mapping(), expectation.columns()));
    Builder(file, expectation, report)
        .build(request.type, {static_cast<std::byte*>(value), 0, 1, nullptr, 0}, {request.path});
  } catch (const ChecksumError&) {
    throw;
  } catch (const NoChecksum&) {
    throw;
  } catch (const FormatError& error) {
    throw error.with_path(file.mapping()->path());
  }
  return report;
}

std::optional<std::vector<std::string>> names_of(const ArrayFile& file, const std::string& root,
                                                 std::string_view path) {
  if (root.empty() && path.empty()) return std::nullopt;
  const std::string part = path.empty() ? root : join(root, std::string(path));
  std::vector<std::string> names;
  for (const auto& entry : file.index().entries())
    if (!file.index().is_filler(entry) && is_within(entry.name, part)) names.emplace_back(entry.name);
  if (names.empty())
    throw std::out_of_range(file.mapping()->path() + ": there is no field with the path '" + part + "'");
  return names;
}

std::vector<ByteRange> ranges_of(const ArrayFile& file, const std::string& root, std::string_view path) {
  return file.ranges(names_of(file, root, path));
}

std::string path_of(const Type& record, const void* object, const void* field, const Type& type) {
  const std::uint64_t offset = reinterpret_cast<std::uintptr_t>(field) - reinterpret_cast<std::uintptr_t>(object);
  for (const auto& one : fields_in(record, object))
    if (one.offset == offset && one.type == &type) return one.name;
  throw std::out_of_range("the member is not among the fields that visit() lists");
}

}  // namespace structs

std::string to_string(const OpenReport& report) {
  const auto megabytes = [](std::uint64_t bytes) {
    return std::to_string(bytes / 1'000'000) + "." + std::to_string(bytes / 100'000 % 10) + " MB";
  };
  std::string text = std::string(report.mode == Mode::map ? "mapped " : "copied ") + megabytes(report.bytes) + " in " +
                     std::to_string(static_cast<std::uint64_t>(report.seconds * 1e6)) + " us; " +
                     megabytes(report.viewed_bytes) + " are mapped in place, " + megabytes(report.private_bytes) +
                     " were copied";
  if (report.objects != 0) text += " (" + std::to_string(report.objects) + " objects)";
  for (const auto& field : report.defaulted) text += "; '" + field + "' is not in the file and keeps its initialiser";
  if (report.warmed) text += "; warmed: " + report.warmed->reason;
  if (report.collapsed) text += "; 2 MiB pages: " + report.collapsed->reason;
  if (report.verified || (report.warmed && report.warmed->verified)) text += "; checksums match";
  return text;
}

}  // namespace onecopy
