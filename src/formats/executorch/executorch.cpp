#include "onecopy/formats/executorch.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "formats/entry_list.hpp"
#include "formats/executorch/layout.hpp"
#include "formats/executorch/segments.hpp"
#include "formats/signatures.hpp"
#include "formats/wire/flatbuffer.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::executorch {
namespace {

using flatbuffer::Table;
using json::describe;

using Metadata = std::map<std::string, std::string, std::less<>>;

// Field numbers of program.fbs and flat_tensor.fbs.
namespace program_field {
constexpr unsigned version = 0, plans = 1, constant_buffer = 2, delegate_data = 3, segments = 4, constant_segment = 5,
                   named_data = 7;
}
namespace flat_tensor_field {
constexpr unsigned version = 0, segments = 1, named_data = 2;
}
namespace named_field {
constexpr unsigned key = 0, segment = 1, layout = 2;
}
namespace subsegments_field {
constexpr unsigned segment = 0, offsets = 1;
}
constexpr unsigned plan_name = 0;     // of ExecutionPlan
constexpr unsigned inline_bytes = 0;  // of Buffer and of BackendDelegateInlineData

bool is_version_of(const signatures::Signature& kind, Bytes file) noexcept {
  const auto identifier = flatbuffer::identifier(file);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return kind.is_in(file) && identifier.size() == 4 && is_digit(identifier[2]) && is_digit(identifier[3]);
}

void expect_schema(std::string_view known, Bytes file) {
  if (const auto found = flatbuffer::identifier(file); found != known)
    reject(FormatError::unsupported, "ExecuTorch: the schema is ", describe(found), ", and known is '", known, "'");
}

class ProgramReader {
 public:
  explicit ProgramReader(Bytes file)
      : area_(area_of_program(file)),
        buffer_(file.first(area_.flatbuffer)),
        program_(buffer_.root()),
        segments_(program_.offsets(program_field::segments), area_) {}

  Index read() {
    read_named_data();
    read_constants();
    read_inline(program_field::constant_buffer, "constant.");
    read_inline(program_field::delegate_data, "delegate.");
    segments_.add_unused(entries_);
    return std::move(entries_).finish_at_first("pte", metadata(), area_.data.offset + area_.data.length);
  }

 private:
  void read_named_data() {
    const auto named = program_.offsets(program_field::named_data);
    for (std::uint32_t i = 0; i < named.size(); ++i) {
      const auto data = named.table(i);
      std::string key(data.text(named_field::key));
      const auto range = segments_.use(data.number<std::uint32_t>(named_field::segment), describe(key));
      entries_.add_bytes(std::move(key), range);
    }
  }

  // The first entry belongs to tensors that are not constants, and has no bytes.
  void read_constants() {
    const auto places = program_.table(program_field::constant_segment);
    if (!places) return;
    const auto offsets = places->vector(subsegments_field::offsets, sizeof(std::uint64_t));
    if (offsets.size() == 0) return;
    const auto segment = segments_.use(places->number<std::uint32_t>(subsegments_field::segment), "a constant");
    auto begin = offsets.number<std::uint64_t>(0);
    for (std::uint32_t i = 0; i < offsets.size(); ++i) {
      const std::uint64_t end = i + 1 < offsets.size() ? offsets.number<std::uint64_t>(i + 1) : segment.length;
      const auto name = "constant." + std::to_string(i);
      if (begin > end || !in_bounds(segment.length, begin, end - begin))
        reject(FormatError::out_of_bounds, "ExecuTorch: '", name, "' would be bytes [", begin, ", ", end,
               ") of a segment of ", segment.length);
      if (i != 0 || begin != end) entries_.add_bytes(name, {segment.offset + begin, end - begin});
      begin = end;
    }
  }

  // Data in the FlatBuffer itself: constants until 2024, and compiled data of backends unless it was extracted.
  void read_inline(unsigned field, const std::string& prefix) {
    const auto buffers = program_.offsets(field);
    for (std::uint32_t i = 0; i < buffers.size(); ++i) {
      const auto range = buffers.table(i).vector(inline_bytes, 1).range();
      if (range.length != 0) entries_.add_bytes(prefix + std::to_string(i), range);
    }
  }

  Metadata metadata() const {
    std::string methods;
    const auto plans = program_.offsets(program_field::plans);
    for (std::uint32_t i = 0; i < plans.size(); ++i)
      methods += (i == 0 ? "" : ", ") + std::string(plans.table(i).text(plan_name));
    return {{"schema", std::string(known_program)},
            {"version", std::to_string(program_.number<std::uint32_t>(program_field::version))},
            {"methods", methods}};
  }

  Area area_;
  flatbuffer::Buffer buffer_;
  Table program_;
  Segments segments_;
  EntryList entries_;
};

class FlatTensorReader {
 public:
  explicit FlatTensorReader(Bytes file)
      : area_(area_of_flat_tensor(file)),
        buffer_(file.first(area_.flatbuffer)),
        root_(buffer_.root()),
        segments_(root_.offsets(flat_tensor_field::segments), area_) {}

  Index read() {
    const auto named = root_.offsets(flat_tensor_field::named_data);
    for (std::uint32_t i = 0; i < named.size(); ++i) read_named(named.table(i));
    segments_.add_unused(entries_);
    Metadata metadata{{"schema", std::string(known_flat_tensor)},
                      {"version", std::to_string(root_.number<std::uint32_t>(flat_tensor_field::version))}};
    return std::move(entries_).finish_at_first("ptd", std::move(metadata), area_.data.offset + area_.data.length);
  }

 private:
  void read_named(const Table& data) {
    std::string key(data.text(named_field::key));
    const auto range = segments_.use(data.number<std::uint32_t>(named_field::segment), describe(key));
    const auto table = data.table(named_field::layout);
    if (!table) return entries_.add_bytes(std::move(key), range);
    entries_.add(array_of(*table, std::move(key), range, entries_));
  }

  Area area_;
  flatbuffer::Buffer buffer_;
  Table root_;
  Segments segments_;
  EntryList entries_;
};

}  // namespace

bool is_pte(Bytes file) noexcept { return is_version_of(signatures::executorch_program, file); }

bool is_ptd(Bytes file) noexcept { return is_version_of(signatures::executorch_data, file); }

Index parse(Bytes file) {
  if (is_pte(file)) {
    expect_schema(known_program, file);
    return ProgramReader(file).read();
  }
  if (!is_ptd(file))
    reject(FormatError::not_this_format,
           "ExecuTorch: the file does not begin with an offset and the identifier 'ET12' or 'FT01'");
  expect_schema(known_flat_tensor, file);
  return FlatTensorReader(file).read();
}

}  // namespace onecopy::executorch
