#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/numpy/npy_array.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/npy.hpp"
#include "onecopy/formats/npz.hpp"
#include "zip_of.hpp"

namespace onecopy {
namespace {

using tests::little;
using tests::zip_of;
using Numbers = std::vector<std::uint64_t>;

Bytes bytes_of(std::string_view file) { return std::as_bytes(std::span(file.data(), file.size())); }

std::string npy_file(std::string_view header, std::string_view data, unsigned version = 1) {
  return "\x93NUMPY" + little(version, 2) + little(header.size(), version == 1 ? 2 : 4) + std::string(header) +
         std::string(data);
}

std::string header(std::string_view descr, std::string_view shape, std::string_view fortran_order = "False") {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(fortran_order) +
         ", 'shape': " + std::string(shape) + ", }     \n";
}

std::string error_of(std::string_view file) {
  try {
    (void)npy::parse(bytes_of(file));
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no error";
}

std::string npz_error_of(std::string_view file) {
  try {
    (void)npz::parse(bytes_of(file));
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no error";
}

bool contains(std::string_view error, std::string_view message) {
  CAPTURE(error);
  CHECK(error.find(message) != std::string_view::npos);
  return true;
}

Numbers numbers(std::span<const std::uint64_t> some) { return {some.begin(), some.end()}; }

}  // namespace

TEST_CASE("a .npy file is one array, named 'array', of the bytes behind its header") {
  const auto text = header("<f4", "(2, 3)");
  for (const unsigned version : {1U, 2U, 3U}) {
    const auto file = npy_file(text, std::string(24, 'x'), version);
    CHECK(npy::is_npy(bytes_of(file)));
    const auto index = npy::parse(bytes_of(file));
    CHECK(index.container() == "npy");
    CHECK(index.kind() == Kind::foreign);
    REQUIRE(index.entries().size() == 1);
    const Entry& entry = index.entries()[0];
    CHECK(entry.name == "array");
    CHECK(entry.dtype == DType::f32);
    CHECK(entry.raw_type.empty());
    CHECK(numbers(entry.shape) == Numbers{2, 3});
    CHECK(entry.strides.empty());
    CHECK(entry.offset == file.size() - 24);
    CHECK(entry.length == 24);
    CHECK(index.data_offset() == entry.offset);
  }
  CHECK(!npy::is_npy({}));
  CHECK(!npy::is_npy(bytes_of("\x93NUMPX\1\1")));
}

TEST_CASE("the keys of a .npy header come in any order, with space and commas as Python has them") {
  for (const std::string_view text : {"{'shape':(),'descr':\"<i8\",'fortran_order':True}",
                                      "{ \"fortran_order\" : False , 'shape' : ( ) ,\n'descr':'i8'}",
                                      "{'descr': '<i8', 'fortran_order': False, 'shape': (1L,), }",
                                      "{'descr': '<i8', 'fortran_order': False, 'shape': (1,1)}"})
    CHECK(error_of(npy_file(text, "12345678")) == "no error");
}

TEST_CASE("arrays whose first axis runs fastest have strides, where they say something") {
  const auto strides = [](std::string_view shape, std::size_t size) {
    const auto file = npy_file(header("|u1", shape, "True"), std::string(size, 'x'));
    const auto index = npy::parse(bytes_of(file));
    return numbers(index.entries()[0].strides);
  };
  CHECK(strides("(2, 3, 4)", 24) == Numbers{1, 2, 6});
  CHECK(strides("(2, 1, 4)", 8) == Numbers{1, 2, 2});
  CHECK(strides("(4,)", 4).empty());
  CHECK(strides("()", 1).empty());
  CHECK(strides("(1, 4, 1)", 4).empty());
  CHECK(strides("(2, 0, 4)", 0).empty());
}

TEST_CASE("types of numpy are ours, or stay what numpy calls them") {
  struct Case {
    std::string_view descr;
    std::optional<DType> dtype;
    std::uint64_t size;
  };
  for (const auto& one : std::array{
           Case{"|b1", DType::boolean, 1},
           Case{"<b1", DType::boolean, 1},
           Case{"|i1", DType::i8, 1},
           Case{">u1", DType::u8, 1},
           Case{"<i2", DType::i16, 2},
           Case{"<u4", DType::u32, 4},
           Case{"<f2", DType::f16, 2},
           Case{"f8", DType::f64, 8},
           Case{"<c8", DType::c64, 8},
           Case{">f4", {}, 4},
           Case{"<c16", {}, 16},
           Case{"<f16", {}, 16},
           Case{"|S7", {}, 7},
           Case{"<U5", {}, 20},
           Case{">U1", {}, 4},
           Case{"|V3", {}, 3},
           Case{"<M8[ns]", {}, 8},
           Case{">m8[25s]", {}, 8},
           Case{"<M8", {}, 8},
           Case{"<m8[generic]", {}, 8},
       }) {
    CAPTURE(one.descr);
    const auto type = npy::parse_type(one.descr);
    REQUIRE(type);
    CHECK(type->dtype == one.dtype);
    CHECK(type->size == one.size);
    const auto file = npy_file(header(one.descr, "(2,)"), std::string(one.size * 2, 'x'));
    const auto index = npy::parse(bytes_of(file));
    CHECK(index.entries()[0].raw_type == (one.dtype ? "" : one.descr));
  }
  for (const std::string_view bad :
       {"",       "<",    "f",    "<f3",     "<f1",           "|f4",         "<i16",
        "<b2",    "<x4",  "<f4 ", "<M4[ns]", "<M8[ns",        "<M8[]",       "<M8[xs]",
        "<M8[3]", "<M8x", "<S",   "<U-1",    "<S99999999999", "<U536870912", "<U18446744073709551616",
        "<<f4",   "=f4"}) {
    CAPTURE(bad);
    CHECK(!npy::parse_type(bad));
    CHECK(contains(error_of(npy_file(header(bad, "(2,)"), "")), "is not a numpy dtype"));
  }
}

TEST_CASE("objects and structured types are refused with the reason") {
  CHECK(error_of(npy_file(header("|O", "(2,)"), "")) ==
        "npy: the array holds Python objects, which only unpickling could read");
  CHECK(
      contains(error_of(npy_file("{'descr': [('a', '<f4'), ('b', '<i8')], 'fortran_order': False, 'shape': (2,)}", "")),
               "npy: the array has a structured type, which is not supported"));
}

TEST_CASE("every inconsistency in a .npy file is reported") {
  const auto with = [](std::string_view text) { return error_of(npy_file(text, "1234")); };
  CHECK(error_of("") == "npy: the file does not begin with \\x93NUMPY and a version");
  CHECK(error_of(std::string("\x93NUMPY\1\0\1", 9)) == "npy: the header's length is cut off");
  CHECK(contains(error_of("\x93NUMPY\4" + std::string(9, '\0')), "version 4.0 is not one of"));
  CHECK(contains(error_of("\x93NUMPY\1\1" + std::string(9, '\0')), "version 1.1 is not one of"));
  CHECK(
      contains(error_of("\x93NUMPY" + little(1, 2) + little(3, 2) + "{}"), "would have 3 bytes, but the file has 12"));
  CHECK(contains(error_of("\x93NUMPY" + little(2, 2) + little(0xFFFFFFFF, 4)), "more than the 1000000"));
  CHECK(error_of(npy_file(header("<f4", "(3,)"), "1234")) == "npy: the data has 4 bytes, but dtype and shape need 12");
  CHECK(contains(error_of(npy_file(header("<f4", "(1,)"), "12345")), "has 5 bytes, but dtype and shape need 4"));
  CHECK(contains(with(header("<f4", "(4611686018427387904, 4)")), "more than 2^63 - 1 bytes"));
  CHECK(contains(with(header("<f4", "(0, 4611686018427387904, 4)")), "more than 2^63 - 1 bytes"));
  CHECK(contains(with(header("<f4", "(18446744073709551616,)")), "more than 64 bits"));
  CHECK(contains(with(header("<f4", "(-1,)")), "expected a non-negative integer"));
  CHECK(contains(with(header("<f4", "(1)")), "the shape is not a tuple"));
  CHECK(contains(with(header("<f4", "(1 1)")), "the shape is not a tuple"));
  CHECK(contains(with(header("<f4", "(1, 1 1)")), "expected ',' or ')'"));
  CHECK(contains(with(header("<f4", "(,)")), "expected a non-negative integer"));
  CHECK(contains(with(header("<f4", "(01,)")), "leading zero"));
  CHECK(contains(with(header("<f4", "[1]")), "expected '('"));
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  CHECK(contains(with(header("<f4", many + ")")), "more than 64 axes"));
  CHECK(contains(with(header("<f4", "(1,)", "0")), "expected True or False"));
  CHECK(contains(with("{}"), "lacks descr, fortran_order or shape"));
  CHECK(contains(with("{'descr': '<f4', 'shape': (1,)}"), "lacks descr, fortran_order or shape"));
  CHECK(contains(with("{'descr': '<f4', 'descr': '<f4'}"), "'descr' occurs twice"));
  CHECK(contains(with("{'shape': (1,), 'shape': (1,)}"), "'shape' occurs twice"));
  CHECK(contains(with("{'fortran_order': True, 'fortran_order': True}"), "'fortran_order' occurs twice"));
  CHECK(contains(with("{'order': 'C'}"), "the unknown key 'order'"));
  CHECK(contains(with(header("<f4", "(1,)") + "x"), "text after the end"));
  CHECK(contains(with("[]"), "expected '{'"));
  CHECK(contains(with("{'descr' '<f4'}"), "expected ':'"));
  CHECK(contains(with("{'descr': '<f4' 'shape': (1,)}"), "expected '}'"));
  CHECK(contains(with("{'descr': '<f4"), "the string does not end"));
  CHECK(contains(with("{'descr': '<\\x664'}"), "characters that are not printable ASCII"));
  CHECK(contains(with("{'descr': '\xe9'}"), "characters that are not printable ASCII"));
  CHECK(contains(with("{descr: '<f4'}"), "expected a string"));
}

TEST_CASE("a .npy file cut or flipped anywhere is accepted or refused, never worse") {
  const auto good = npy_file(header("<i2", "(3, 2)", "True"), "123456789abc");
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(error_of(good.substr(0, size)) != "no error");
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    auto bad = good;
    for (std::uint64_t flips = random() % 3 + 1; flips > 0; --flips)
      bad[random() % bad.size()] ^= static_cast<char>(1U << (random() % 8));
    try {
      const auto index = npy::parse(bytes_of(bad));
      for (const Entry& entry : index.entries()) REQUIRE(in_bounds(bad.size(), entry.offset, entry.length));
    } catch (const FormatError&) {
      continue;
    }
  }
}

TEST_CASE("stored members of a .npz file are entries, and the others are named") {
  const auto file = zip_of({{.name = "w.npy", .data = npy_file(header("<f4", "(1,)"), "1234")},
                            {.name = "packed.npy", .data = "?", .method = 8, .size = 99},
                            {.name = "a/b.npy", .data = npy_file(header("<U1", "(1,)"), "5678")},
                            {.name = "more.npy", .data = "?", .method = 8, .size = 99},
                            {.name = "objects.npy", .data = npy_file(header("|O", "(1,)"), "cos\nsystem\n")},
                            {.name = "notes.txt", .data = "hello"}});
  CHECK(npz::is_npz(bytes_of(file)));
  const auto index = npz::parse(bytes_of(file));
  CHECK(index.container() == "npz");
  REQUIRE(index.entries().size() == 2);
  const Entry& w = *index.find("w");
  CHECK(file.substr(w.offset, w.length) == "1234");
  const Entry& b = *index.find("a/b");
  CHECK(file.substr(b.offset, b.length) == "5678");
  CHECK(b.raw_type == "<U1");
  CHECK(index.metadata().at("compressed") == "packed, more");
  CHECK(index.metadata().at("unsupported") == "objects");
  CHECK(index.metadata().at("others") == "notes.txt");
}

TEST_CASE("a .npz file without an array to look at is refused with the reason") {
  const tests::ZipMember packed{.name = "a.npy", .data = "?", .method = 8, .size = 99};
  CHECK(contains(npz_error_of(zip_of({packed})), "numpy.savez writes arrays as they are, where savez_compressed"));
  CHECK(npz_error_of(zip_of({{.name = "o.npy", .data = npy_file(header("|O", "()"), "")}})) ==
        "npz: 'o' holds Python objects, which only unpickling could read");
  CHECK(npz_error_of(zip_of({{.name = "a.txt"}})) == "npz: the archive has no arrays");
  CHECK(contains(npz_error_of("PK\3\4"), "no end of a central directory"));
  CHECK(npz_error_of(zip_of({{.name = "w.npy", .data = npy_file(header("<f4", "(3,)"), "1234")}})) ==
        "npz: 'w': npy: the data has 4 bytes, but dtype and shape need 12");
}

TEST_CASE("a zip archive is a .npz file when an array is in it") {
  CHECK(npz::is_npz(bytes_of(zip_of({{.name = "x"}, {.name = "w.npy"}}))));
  CHECK(!npz::is_npz(bytes_of(zip_of({{.name = "x"}, {.name = "w.npz"}}))));
  CHECK(!npz::is_npz(bytes_of(zip_of({}))));
  CHECK(!npz::is_npz({}));
  CHECK(!npz::is_npz(bytes_of(zip_of({{.name = "x"}}).substr(0, 40))));
  CHECK(npz::is_npz(bytes_of(zip_of({{.name = "w.npy"}}).substr(0, 40))));  // and parse says that it is cut off
}

}  // namespace onecopy
