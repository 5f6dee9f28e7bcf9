#include "flatbuffer_builder.hpp"
#include "formats/parsing.hpp"
#include "onecopy/formats/executorch.hpp"
#include "precompiled.hpp"

namespace onecopy {
namespace {

using namespace testing;

using flatbuffer_test::file_of;
using flatbuffer_test::TableOf;

constexpr auto error_of = error_in<executorch::parse>;

TableOf segment(std::uint64_t offset, std::uint64_t size) { return TableOf().number(0, offset).number(1, size); }

TableOf named(std::string key, std::uint32_t i) { return TableOf().text(0, std::move(key)).number(1, i); }

TableOf constants(std::uint32_t segment, const std::vector<std::uint64_t>& offsets) {
  return TableOf().number(0, segment).numbers(1, offsets);
}

TableOf layout(std::int8_t type, const std::vector<std::int32_t>& sizes, const std::vector<std::uint8_t>& order) {
  return TableOf().number(0, type).numbers(1, sizes).numbers(2, order);
}

// A program with the extended header, and its segments behind it at a multiple of 16.
std::string program(const TableOf& root, const std::string& segments, std::uint32_t header_length = 32) {
  std::string header("eh00", 4);
  header.resize(header_length);
  auto file = file_of(root, "ET12", with(header, 4, header_length));
  const std::uint64_t size = file.size();
  file.resize((size + 15) / 16 * 16);
  file = with(with(file, 16, size), 24, std::uint64_t{file.size()});
  if (header_length >= 32) file = with(file, 32, std::uint64_t{segments.size()});
  return file + segments;
}

std::string flat_tensor(const TableOf& root, const std::string& segments) {
  std::string header("FH01\x28\0\0\0", 8);
  header.resize(48);
  auto file = file_of(root, "FT01", header);
  file = with(with(file, 16, std::uint64_t{48}), 24, std::uint64_t{file.size() - 48});
  file.resize((file.size() + 15) / 16 * 16);
  return with(with(file, 32, std::uint64_t{file.size()}), 40, std::uint64_t{segments.size()}) + segments;
}

// Segments "constants", "named" and "other", of 16, 4 and 5 bytes.
const std::string three_segments = "0123456789ABCDEFNAME............OTHER";

TableOf three() {
  return TableOf()
      .number(0, 3U)
      .tables(1, {TableOf().text(0, "forward"), TableOf().text(0, "encode")})
      .tables(4, {segment(0, 16), segment(16, 4), segment(32, 5)})
      .table(5, constants(0, {0, 0, 4, 16}))
      .tables(7, {named("weights", 1), named("the same", 1)});
}

std::string golden(std::string_view name) {
  return contents(std::filesystem::path(ONECOPY_GOLDEN) / "executorch" / name);
}

}  // namespace

TEST_CASE("a program of ExecuTorch says where its named data, constants and segments lie") {
  for (const std::uint32_t header_length : {24U, 32U, 40U}) {
    const auto file = program(three(), three_segments, header_length);
    CHECK(executorch::is_pte(bytes_of(file)));
    CHECK(!executorch::is_ptd(bytes_of(file)));
    const auto index = executorch::parse(bytes_of(file));
    CHECK(index.container() == "pte");
    CHECK(index.kind() == Kind::foreign);
    CHECK(index.metadata().at("schema") == "ET12");
    CHECK(index.metadata().at("version") == "3");
    CHECK(index.metadata().at("methods") == "forward, encode");
    CHECK(listed(file, index) ==
          "weights U8[4] = NAME; the same U8[4] = NAME; constant.1 U8[4] = 0123; constant.2 U8[12] = 456789ABCDEF; "
          "constant.3 U8[0]; segment.2 U8[5] = OTHER");
    CHECK(index.data_offset() == file.size() - three_segments.size());
  }
}

TEST_CASE("a program without segments has its data inside, and no header") {
  const auto file = file_of(TableOf()
                                .tables(2, {TableOf(), TableOf().bytes(0, "abcd", 16)})
                                .tables(3, {TableOf().bytes(0, "compiled", 16)})
                                .tables(4, {segment(0, 0)})
                                .table(5, constants(0, {0})),
                            "ET12");
  CHECK(listed(file, executorch::parse(bytes_of(file))) == "constant.1 U8[4] = abcd; delegate.0 U8[8] = compiled");
  CHECK(error_of(file_of(TableOf(), "ET12")) == "accepted");
  CHECK(error_of(file_of(TableOf().tables(4, {segment(0, 1)}), "ET12")) == "out_of_bounds");
}

TEST_CASE("data of ExecuTorch has types and shapes, and strides where its axes are not in order") {
  const std::string segments =
      "whole...whole...whole...swapped.swapped.swapped.swapped.swapped.swapped.scalar..PPPSS..B";
  const auto file = flat_tensor(
      TableOf()
          .number(0, 0U)
          .tables(1, {segment(0, 24), segment(24, 48), segment(72, 8), segment(80, 3), segment(83, 2), segment(87, 1)})
          .tables(2, {named("w", 0).table(2, layout(6, {2, 3}, {0, 1})),
                      named("swapped", 1).table(2, layout(5, {2, 3, 4}, {2, 0, 1})),
                      named("scalar", 2).table(2, layout(4, {}, {})), named("packed", 3).table(2, layout(16, {5}, {0})),
                      named("strange", 3).table(2, layout(99, {5}, {0})), named("bytes", 4)}),
      segments);
  CHECK(executorch::is_ptd(bytes_of(file)));
  const auto index = executorch::parse(bytes_of(file));
  CHECK(index.container() == "ptd");
  CHECK(index.metadata().at("schema") == "FT01");
  CHECK(listed(file, index) == "w F32[2,3] = " + segments.substr(0, 24) +
                                   "; swapped F16[2,3,4] strides(3,1,6) = " + segments.substr(24, 48) +
                                   "; scalar I64[] = scalar..; packed QUINT4X2[5] = PPP; strange type 99[5] = PPP; "
                                   "bytes U8[2] = SS; segment.5 U8[1] = B");
  CHECK(index.find("w")->offset == index.data_offset());
}

TEST_CASE("every type of ExecuTorch has its size, and those with several elements in a byte have any") {
  // Bytes of an element, by the numbers of PyTorch's ScalarType; 0: several elements share a byte.
  constexpr std::array bytes_of_type{1U, 1U, 2U, 4U, 8U, 2U, 4U, 8U, 4U, 8U, 16U, 1U, 1U, 1U, 4U,
                                     2U, 0U, 0U, 0U, 0U, 0U, 1U, 2U, 1U, 1U, 1U,  1U, 2U, 4U, 8U};
  for (std::size_t type = 0; type < bytes_of_type.size(); ++type) {
    CAPTURE(type);
    const auto error = [&](std::size_t length) {
      auto tensor = named("t", 0).table(2, layout(static_cast<std::int8_t>(type), {6}, {0}));
      return error_of(
          flat_tensor(TableOf().tables(1, {segment(0, length)}).tables(2, {tensor}), std::string(length, 'x')));
    };
    const std::size_t size = 6 * std::size_t{bytes_of_type[type]};
    CHECK(error(size != 0 ? size : 3) == "accepted");
    CHECK((error(size + 1) == "accepted") == (size == 0));
  }
}

TEST_CASE("what is no file of ExecuTorch, and headers that do not fit the file, are refused") {
  CHECK(error_of("ET12") == "not_this_format");
  CHECK(!executorch::is_pte(bytes_of("BUDGET12 and more text than that")));
  CHECK(error_of(file_of(TableOf(), "ET11")) == "unsupported");
  CHECK(error_of(file_of(TableOf(), "FT02")) == "unsupported");
  CHECK(error_of(file_of(TableOf(), "FT01")) == "not_this_format");
  const auto good = program(three(), three_segments);
  CHECK(error_of(with(good, 12, UINT32_MAX)) == "truncated at 16");
  CHECK(error_of(with(good, 12, 4U)) == "truncated at 16");
  CHECK(error_of(with(good, 12, 16U)) == "malformed at 16");
  CHECK(error_of(with(good, 16, UINT64_MAX)) == "truncated");
  CHECK(error_of(with(good, 24, UINT64_MAX)) == "truncated");
  CHECK(error_of(with(good, 24, std::uint64_t{48})) == "inconsistent");
  CHECK(error_of(with(good, 32, std::uint64_t{three_segments.size() + 1})) == "truncated");
  CHECK(error_of(with(good, 24, std::uint64_t{0})) == "out_of_bounds");
  CHECK(error_of(good.substr(0, good.size() - 1)) == "truncated");
  const auto data = flat_tensor(TableOf(), "x");
  CHECK(error_of(data) == "accepted");
  CHECK(error_of(with(data, 12, 32U)) == "malformed at 16");
  CHECK(error_of(with(data, 16, UINT64_MAX)) == "truncated");
  CHECK(error_of(with(data, 24, UINT64_MAX)) == "truncated");
}

TEST_CASE("segments, constants and layouts that do not fit are refused, with the reason") {
  const auto bad = [](const TableOf& root) { return error_of(program(root, std::string(40, 'x'))); };
  CHECK(bad(TableOf().tables(4, {segment(40, 1)})) == "out_of_bounds");
  CHECK(bad(TableOf().tables(4, {segment(UINT64_MAX, 2)})) == "out_of_bounds");
  CHECK(bad(TableOf().tables(4, {segment(8, 8), segment(0, 9)})) == "inconsistent");
  CHECK(bad(TableOf().tables(7, {named("w", 0)})) == "out_of_bounds");
  const auto one = [] { return TableOf().tables(4, {segment(0, 8)}); };
  CHECK(bad(one().table(5, constants(1, {0, 4}))) == "out_of_bounds");
  CHECK(bad(one().table(5, constants(0, {0, 4, 2}))) == "out_of_bounds");
  CHECK(bad(one().table(5, constants(0, {0, 9}))) == "out_of_bounds");
  CHECK(bad(one().tables(7, {named("w", 0), named("w", 0)})) == "inconsistent");

  const auto laid = [](const TableOf& its) {
    return error_of(flat_tensor(TableOf().tables(1, {segment(0, 8)}).tables(2, {named("w", 0).table(2, its)}),
                                std::string(8, 'x')));
  };
  CHECK(laid(layout(6, {2}, {0})) == "accepted");
  CHECK(laid(layout(6, {3}, {0})) == "inconsistent");
  CHECK(laid(layout(6, {-1}, {0})) == "malformed");
  CHECK(laid(layout(6, {2}, {})) == "inconsistent");
  CHECK(laid(layout(6, {2, 1}, {0, 0})) == "inconsistent");
  CHECK(laid(layout(6, {2, 1}, {0, 2})) == "inconsistent");
  CHECK(laid(layout(6, {INT32_MAX, INT32_MAX, INT32_MAX}, {0, 1, 2})) == "out_of_bounds");
}

TEST_CASE("files that ExecuTorch wrote open") {
  const auto program = golden("small.pte");
  const auto index = executorch::parse(bytes_of(program));
  CHECK(index.metadata().at("methods") == "forward");
  CHECK(index.entries().size() == 6);
  for (const auto& [name, data] : {std::pair("weights", "named data"),
                                   {"the same", "named data"},
                                   {"constant.2", "second"},
                                   {"segment.1", "changes"}})
    CHECK(data_of(program, index.find(name)) == data);
  CHECK(data_of(program, index.find("constant.1")) == std::string_view("first constant\0\0", 16));
  CHECK(data_of(program, index.find("other")).size() == 20);

  const auto data = golden("small.ptd");
  const auto tensors = executorch::parse(bytes_of(data));
  const auto text = listed(data, tensors);
  CHECK(text.find("plain F32[2,3] = ") != std::string::npos);
  CHECK(text.find("channels_last I16[2,2,3,4] strides(24,1,8,2) = ") != std::string::npos);
  CHECK(data_of(data, tensors.find("blob")) == "a blob");
  // The element at [1, 1, 2, 3] of an arange is the last one.
  CHECK(number_in<std::int16_t>(data, tensors.find("channels_last")->offset + 2 * (24 + 1 + 2 * 8 + 3 * 2)) == 47);
}

}  // namespace onecopy
