#include "formats/numpy/npy_array.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "formats/signatures.hpp"
#include "formats/wire/json.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/npy.hpp"

namespace onecopy::npy {
namespace {

using json::describe;

constexpr std::uint64_t before_length = 8;  // signature and version

// A dict as Python writes it, of strings, True or False, and tuples of integers: {'descr': '<f4', 'shape': (3, 4), }.
class Literal {
 public:
  // `begin`: of the text in the file.
  Literal(std::string_view text, std::uint64_t begin) noexcept : text_(text), begin_(begin) {}

  // Calls value(key) for each item, which must read it; stops when that gives false.
  template <class Value>
  void dict(const Value& value) {
    expect('{');
    while (!take('}')) {
      const auto key = string();
      expect(':');
      if (!value(key)) return;
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) fail("text after the end");
  }

  bool next_is(char wanted) noexcept {
    skip_space();
    return at_ < text_.size() && text_[at_] == wanted;
  }

  std::string_view string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("expected a string");
    const std::size_t begin = ++at_;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_)
      if (text_[at_] < 0x20 || text_[at_] > 0x7E || text_[at_] == '\\')
        fail("a string with characters that are not printable ASCII");
    if (at_ == text_.size()) fail("the string does not end");
    return text_.substr(begin, at_++ - begin);
  }

  bool boolean() {
    if (word("True")) return true;
    if (!word("False")) fail("expected True or False");
    return false;
  }

  // (), (3,), (3, 4); but (3) is a number, and no tuple.
  std::vector<std::uint64_t> shape() {
    std::vector<std::uint64_t> shape;
    expect('(');
    bool has_comma = true;
    while (!take(')')) {
      if (!has_comma) fail("expected ',' or ')'");
      if (shape.size() == most_axes)
        fail(concat("the shape has more than ", most_axes, " axes"), FormatError::too_costly);
      shape.push_back(integer());
      has_comma = take(',');
      if (!has_comma && shape.size() == 1) fail("the shape is not a tuple");
    }
    return shape;
  }

  [[noreturn]] void fail(const std::string& what, FormatError::Kind kind = FormatError::malformed) const {
    throw FormatError(kind, concat("npy: byte ", at_, " of the header: ", what), begin_ + at_);
  }

 private:
  void skip_space() noexcept {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  bool take(char wanted) noexcept {
    if (!next_is(wanted)) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!take(wanted)) fail(concat("expected '", wanted, "'"));
  }

  bool word(std::string_view wanted) noexcept {
    skip_space();
    if (text_.substr(at_, wanted.size()) != wanted) return false;
    at_ += wanted.size();
    return true;
  }

  std::uint64_t integer() {
    skip_space();
    const char* const begin = text_.data() + at_;
    const char* const end = text_.data() + text_.size();
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(begin, end, number);
    if (error == std::errc::result_out_of_range) fail("a number of more than 64 bits");
    if (error != std::errc()) fail("expected a non-negative integer");
    if (*begin == '0' && stop - begin > 1) fail("a number with a leading zero");
    at_ += static_cast<std::size_t>(stop - begin);
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
    return number;
  }

  std::string_view text_;
  std::uint64_t begin_;
  std::size_t at_ = 0;
};

struct Header {
  ItemType type;
  std::string_view descr;
  std::string reason;  // why nothing more was read
  std::vector<std::uint64_t> shape;
  bool first_fastest = false;
};

// False: the type is one whose elements cannot be looked at, and `reason` says so.
bool read_type(Literal& literal, Header& header) {
  if (literal.next_is('[') || literal.next_is('(')) {
    header.reason = "has a structured type, which is not supported: save its fields as arrays of their own";
    return false;
  }
  header.descr = literal.string();
  const auto type = parse_type(header.descr);
  if (!type) literal.fail(describe(header.descr) + " is not a numpy dtype");
  header.type = *type;
  if (type->is_object) header.reason = "holds Python objects, which only unpickling could read";
  return !type->is_object;
}

Header read_header(std::string_view text, std::uint64_t begin) {
  Literal literal(text, begin);
  Header header;
  bool has_type = false;
  bool has_order = false;
  bool has_shape = false;
  literal.dict([&](std::string_view key) {
    const auto once = [&](bool& seen) {
      if (std::exchange(seen, true)) literal.fail(describe(key) + " occurs twice", FormatError::inconsistent);
    };
    if (key == "descr") {
      once(has_type);
      return read_type(literal, header);
    }
    if (key == "fortran_order") {
      once(has_order);
      header.first_fastest = literal.boolean();
    } else if (key == "shape") {
      once(has_shape);
      header.shape = literal.shape();
    } else {
      literal.fail("the unknown key " + describe(key));
    }
    return true;
  });
  if (header.reason.empty() && !(has_type && has_order && has_shape))
    reject(FormatError::malformed, "npy: the header lacks descr, fortran_order or shape");
  return header;
}

// Where the dict lies in the file.
ByteRange header_range(Bytes file) {
  if (!is_npy(file)) reject(FormatError::not_this_format, "npy: the file does not begin with \\x93NUMPY and a version");
  const auto byte = [file](std::uint64_t at) { return std::to_integer<std::uint64_t>(file[at]); };
  const std::uint64_t major = byte(6);
  if (major < 1 || major > 3 || byte(7) != 0)
    reject(FormatError::unsupported, "npy: version ", major, '.', byte(7), " is not one of 1.0, 2.0 and 3.0");
  const std::uint64_t width = major == 1 ? 2 : 4;
  if (!in_bounds(file.size(), before_length, width))
    reject(FormatError::truncated, "npy: the header's length is cut off");
  const std::uint64_t length = little_endian(file.subspan(before_length, width));
  if (length > largest_header)
    reject(FormatError::too_costly, "npy: the header would have ", length, " bytes, more than the ", largest_header,
           " that are allowed");
  if (!in_bounds(file.size(), before_length + width, length))
    reject(FormatError::truncated, "npy: the header would have ", length, " bytes, but the file has ", file.size());
  return {before_length + width, length};
}

}  // namespace

bool is_npy(Bytes file) noexcept { return file.size() >= before_length && signatures::npy.is_in(file); }

NpyArray read_array(Bytes whole, ByteRange place) {
  const Bytes file = whole.subspan(place.offset, place.length);
  const ByteRange range = header_range(file);
  Header header = read_header({reinterpret_cast<const char*>(file.data()) + range.offset, range.length}, range.offset);
  NpyArray found;
  found.reason = std::move(header.reason);
  if (!found.reason.empty()) return found;
  const auto size = size_in_bytes(header.shape, header.type.size);
  if (!size) reject(FormatError::out_of_bounds, "npy: the shape needs more than 2^63 - 1 bytes");
  const std::uint64_t begin = range.offset + range.length;
  if (*size != file.size() - begin)
    reject(*size > file.size() - begin ? FormatError::truncated : FormatError::inconsistent, "npy: the data has ",
           file.size() - begin, " bytes, but dtype and shape need ", *size,
           (*size > file.size() - begin ? " (is the file cut off?)" : ""));
  FoundArray& array = found.array;
  if (header.type.dtype)
    array.dtype = *header.type.dtype;
  else
    array.raw_type = header.descr;
  if (header.first_fastest) array.strides = first_runs_fastest(header.shape);
  array.shape = std::move(header.shape);
  array.data = {place.offset + begin, *size};
  return found;
}

}  // namespace onecopy::npy
