#include "formats/numpy/npy_array.hpp"
#include "formats/parsing.hpp"
#include "onecopy/formats/npy.hpp"
#include "onecopy/formats/npz.hpp"
#include "precompiled.hpp"
#include "zip_of.hpp"

namespace onecopy {
namespace {

using namespace testing;

using tests::little;
using tests::zip_of;

std::string npy_file(std::string_view header, std::string_view data, unsigned version = 1) {
  return "\x93NUMPY" + little(version, 2) + little(header.size(), version == 1 ? 2 : 4) + std::string(header) +
         std::string(data);
}

std::string header(std::string_view descr, std::string_view shape, std::string_view fortran_order = "False") {
  return "{'descr': '" + std::string(descr) + "', 'fortran_order': " + std::string(fortran_order) +
         ", 'shape': " + std::string(shape) + ", }     \n";
}

constexpr auto error_of = error_in<npy::parse>;
constexpr auto npz_error_of = error_in<npz::parse>;

}  // namespace

TEST_CASE("the keys of a .npy header come in any order, with space and commas as Python has them") {
  for (const std::string_view text : {"{'shape':(),'descr':\"<i8\",'fortran_order':True}",
                                      "{ \"fortran_order\" : False , 'shape' : ( ) ,\n'descr':'i8'}",
                                      "{'descr': '<i8', 'fortran_order': False, 'shape': (1L,), }",
                                      "{'descr': '<i8', 'fortran_order': False, 'shape': (1,1)}"})
    CHECK(error_of(npy_file(text, "12345678")) == "accepted");
}

TEST_CASE("arrays whose first axis runs fastest have strides, where they say something") {
  const auto shown = [](std::string_view shape, std::string_view data) {
    const auto file = npy_file(header("|u1", shape, "True"), data);
    return listed(file, npy::parse(bytes_of(file)));
  };
  CHECK(shown("(2, 3, 2)", "abcdefABCDEF") == "array U8[2,3,2] strides(1,2,6) = abcdefABCDEF");
  CHECK(shown("(2, 1, 4)", "abcdABCD") == "array U8[2,1,4] strides(1,2,2) = abcdABCD");
  CHECK(shown("(4,)", "abcd") == "array U8[4] = abcd");
  CHECK(shown("()", "a") == "array U8[] = a");
  CHECK(shown("(1, 4, 1)", "abcd") == "array U8[1,4,1] = abcd");
  CHECK(shown("(2, 0, 4)", "") == "array U8[2,0,4]");
}

TEST_CASE("types of numpy are ours, or stay what numpy calls them") {
  struct Same {
    std::string_view name;  // of ours; empty: numpy's own
    std::size_t size;
    std::vector<std::string_view> descrs;
  };
  const std::vector<Same> all{
      {"BOOL", 1, {"|b1", "<b1"}}, {"I8", 1, {"|i1"}},         {"U8", 1, {">u1"}},
      {"I16", 2, {"<i2"}},         {"U32", 4, {"<u4"}},        {"F16", 2, {"<f2"}},
      {"F64", 8, {"f8"}},          {"F32", 4, {"=f4"}},        {"C64", 8, {"<c8"}},
      {"", 4, {">f4", ">U1"}},     {"", 16, {"<c16", "<f16"}}, {"", 7, {"|S7"}},
      {"", 20, {"<U5"}},           {"", 3, {"|V3"}},           {"", 8, {"<M8[ns]", ">m8[25s]", "<M8", "<m8[generic]"}}};
  for (const auto& [name, size, descrs] : all)
    for (const auto descr : descrs) {
      const std::string data(size * 2, 'x');
      const auto file = npy_file(header(descr, "(2,)"), data);
      CHECK(listed(file, npy::parse(bytes_of(file))) ==
            "array " + std::string(name.empty() ? descr : name) + "[2] = " + data);
    }
  for (const std::string_view bad :
       {"",       "<",    "f",    "<f3",     "<f1",           "|f4",         "<i16",
        "<b2",    "<x4",  "<f4 ", "<M4[ns]", "<M8[ns",        "<M8[]",       "<M8[xs]",
        "<M8[3]", "<M8x", "<S",   "<U-1",    "<S99999999999", "<U536870912", "<U18446744073709551616",
        "<<f4",   "@f4"}) {
    CAPTURE(bad);
    CHECK(!npy::parse_type(bad));
    CHECK(error_of(npy_file(header(bad, "(2,)"), "")).starts_with("malformed at "));
  }
}

TEST_CASE("every inconsistency in a .npy file is reported") {
  const auto with = [](std::string_view text) { return error_of(npy_file(text, "1234")); };
  CHECK(error_of("") == "not_this_format");
  CHECK(error_of(std::string("\x93NUMPY\1\0\1", 9)) == "truncated at 8");
  CHECK(error_of("\x93NUMPY\4" + std::string(9, '\0')) == "unsupported");
  CHECK(error_of("\x93NUMPY\1\1" + std::string(9, '\0')) == "unsupported");
  CHECK(error_of("\x93NUMPY" + little(1, 2) + little(3, 2) + "{}") == "truncated at 10");
  CHECK(error_of("\x93NUMPY" + little(2, 2) + little(0xFFFFFFFF, 4)) == "too_costly");
  CHECK(error_of(npy_file(header("<f4", "(3,)"), "1234")) == "truncated");
  CHECK(error_of(npy_file(header("<f4", "(1,)"), "12345")) == "inconsistent");
  CHECK(with(header("<f4", "(4611686018427387904, 4)")) == "out_of_bounds");
  CHECK(with(header("<f4", "(0, 4611686018427387904, 4)")) == "out_of_bounds");
  CHECK(with(header("<f4", "(18446744073709551616,)")) == "malformed at 61");
  CHECK(with(header("<f4", "(-1,)")) == "malformed at 61");
  CHECK(with(header("<f4", "(1)")) == "malformed at 62");
  CHECK(with(header("<f4", "(1 1)")) == "malformed at 63");
  CHECK(with(header("<f4", "(1, 1 1)")) == "malformed at 66");
  CHECK(with(header("<f4", "(,)")) == "malformed at 61");
  CHECK(with(header("<f4", "(01,)")) == "malformed at 61");
  CHECK(with(header("<f4", "[1]")) == "malformed at 60");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  CHECK(with(header("<f4", many + ")")) == "too_costly at 189");
  CHECK(with(header("<f4", "(1,)", "0")) == "malformed at 44");
  CHECK(with("{}") == "malformed");
  CHECK(with("{'descr': '<f4', 'shape': (1,)}") == "malformed");
  CHECK(with("{'descr': '<f4', 'descr': '<f4'}") == "inconsistent at 35");
  CHECK(with("{'shape': (1,), 'shape': (1,)}") == "inconsistent at 34");
  CHECK(with("{'fortran_order': True, 'fortran_order': True}") == "inconsistent at 50");
  CHECK(with("{'order': 'C'}") == "malformed at 19");
  CHECK(with(header("<f4", "(1,)") + "x") == "malformed at 73");
  CHECK(with("[]") == "malformed at 10");
  CHECK(with("{'descr' '<f4'}") == "malformed at 19");
  CHECK(with("{'descr': '<f4' 'shape': (1,)}") == "malformed at 26");
  CHECK(with("{'descr': '<f4") == "malformed at 24");
  CHECK(with("{'descr': '<\\x664'}") == "malformed at 22");
  CHECK(with("{'descr': '\xe9'}") == "malformed at 21");
  CHECK(with("{descr: '<f4'}") == "malformed at 11");
}

TEST_CASE("a .npy file cut or flipped anywhere is accepted or refused, never worse") {
  const auto good = npy_file(header("<i2", "(3, 2)", "True"), "123456789abc");
  check_damaged(good, [](Bytes file) { return ranges_of(npy::parse(file)); });
}

TEST_CASE("a .npz file without an array to look at is refused with the reason") {
  const tests::ZipMember packed{.name = "a.npy", .data = "?", .method = 8, .size = 99};
  CHECK(npz_error_of(zip_of({packed})) == "unsupported");
  CHECK(npz_error_of(zip_of({{.name = "o.npy", .data = npy_file(header("|O", "()"), "")}})) == "unsupported");
  CHECK(npz_error_of(zip_of({{.name = "a.txt"}})) == "unsupported");
  CHECK(npz_error_of("PK\3\4") == "truncated");
  CHECK(npz_error_of(zip_of({{.name = "w.npy", .data = npy_file(header("<f4", "(3,)"), "1234")}})) == "truncated");
  const auto offset_of = [](const std::string& file, Index (*parse)(Bytes)) -> std::uint64_t {
    try {
      (void)parse(bytes_of(file));
    } catch (const FormatError& error) {
      return error.offset().value_or(0);
    }
    return 0;
  };
  const auto bad = npy_file("{'descr': 5}", "");
  const auto archive = zip_of({{.name = "w.npy", .data = bad}});
  CHECK(offset_of(bad, npy::parse) > 0);
  CHECK(offset_of(archive, npz::parse) == archive.find(bad) + offset_of(bad, npy::parse));
  CHECK(npz::is_npz(bytes_of(zip_of({{.name = "x"}, {.name = "w.npy"}}))));
  CHECK(!npz::is_npz(bytes_of(zip_of({{.name = "x"}, {.name = "w.npz"}}))));
  CHECK(!npz::is_npz(bytes_of(zip_of({}))));
  CHECK(!npz::is_npz({}));
  CHECK(!npz::is_npz(bytes_of(zip_of({{.name = "x"}}).substr(0, 40))));
  CHECK(npz::is_npz(bytes_of(zip_of({{.name = "w.npy"}}).substr(0, 40))));  // and parse says that it is cut off
}

}  // namespace onecopy
