#include "formats/parsing.hpp"
#include "formats/wire/zip.hpp"
#include "precompiled.hpp"
#include "zip_of.hpp"

namespace onecopy {
namespace {

using namespace testing;

using tests::central_record;
using tests::end_record;
using tests::little;
using tests::local_record;
using tests::wide_end_records;
using tests::zip_of;
using tests::ZipMember;

constexpr auto error_of = error_in<zip::members>;

// One member whose two records say different things.
std::string disagreeing(const ZipMember& local, const ZipMember& central) {
  const auto file = local_record(local) + local.data;
  const auto directory = central_record(central);
  return file + directory + end_record(1, directory.size(), file.size());
}

}  // namespace

TEST_CASE("members of a zip archive are found where their data lies") {
  const auto file =
      zip_of({{.name = "a", .data = "first"},
              {.name = "a long name, b/c", .data = "packed", .method = 8, .size = 100},
              {.name = "\u00e9", .data = "", .flags = 1U << 11U, .extra = little(0x4246, 2) + little(2, 2) + "ZZ"}},
             "a comment, PK\5\6 in it");
  CHECK(zip::first_name(bytes_of(file)) == "a");
  auto changing = file;
  const auto members = zip::members(bytes_of(changing));
  std::ranges::fill(changing, 'x');  // the names stay what they were
  std::string found;
  for (const auto& [name, method, data, whole] : members)
    found +=
        name + (method == zip::Method::deflated ? " packed: " : ": ") + file.substr(data.offset, data.length) + "; ";
  CHECK(found == "a: first; a long name, b/c packed: packed; \u00e9: ; ");
  CHECK(zip::members(bytes_of(zip_of({}))).empty());
  CHECK(zip::first_name(bytes_of(zip_of({}))).empty());
  CHECK(zip::first_name({}).empty());
}

TEST_CASE("sizes of more than 32 bits stand in the zip64 records") {
  const std::string both = little(1, 2) + little(16, 2) + little(5, 8) + little(5, 8);
  const ZipMember wide{.name = "a", .data = "12345", .stored_size = 0xFFFFFFFF, .extra = both};
  const ZipMember narrow{.name = "a", .data = "12345"};
  CHECK(error_of(disagreeing(wide, narrow)) == "accepted");  // as numpy.savez writes it
  CHECK(error_of(disagreeing(wide, wide)) == "accepted");
  auto without = wide;
  without.extra = little(0x4246, 2) + little(0, 2);
  CHECK(error_of(disagreeing(narrow, without)) == "malformed");
  without.extra = little(1, 2) + little(8, 2) + little(5, 8);
  CHECK(error_of(disagreeing(narrow, without)) == "truncated at 95");
  without.extra = little(1, 2) + little(80, 2) + little(5, 8);
  CHECK(error_of(disagreeing(narrow, without)) == "truncated at 87");

  const auto body = local_record(narrow) + narrow.data;
  const auto directory = central_record(narrow);
  const std::uint64_t at = body.size() + directory.size();
  const auto end = end_record(1, directory.size(), body.size());
  const auto records = wide_end_records(1, directory.size(), body.size(), at);
  CHECK(error_of(body + directory + records + end) == "accepted");
  CHECK(error_of(body + directory + records + end_record(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, "", 0xFFFF)) == "accepted");
  CHECK(error_of(body + directory + records + end_record(2, directory.size(), body.size())) == "inconsistent");
  CHECK(error_of(body + directory + records + end_record(1, 3, body.size())) == "inconsistent");
  CHECK(error_of(body + directory + records + end_record(1, directory.size(), 3)) == "inconsistent");
  for (const std::uint64_t wrong : {std::uint64_t{0}, at - 1, at + 1, UINT64_MAX})
    CHECK(error_of(body + directory + wide_end_records(1, directory.size(), body.size(), wrong) + end) ==
          "inconsistent");
}

TEST_CASE("disagreeing records of a zip archive are reported") {
  const ZipMember one{.name = "a", .data = "12345", .crc = 7};
  const auto with = [&](auto change) {
    auto changed = one;
    change(changed);
    return disagreeing(changed, one);
  };
  CHECK(error_of(disagreeing(one, one)) == "accepted");
  // A member's own header may leave sizes to the directory, where it says so.
  CHECK(error_of(with([](auto& m) { m.flags = 8, m.crc = 0, m.stored_size = 0; })) == "accepted");
  CHECK(error_of(with([](auto& m) { m.stored_size = 0; })) == "inconsistent");
  CHECK(error_of(with([](auto& m) { m.name = "b"; })) == "inconsistent");
  CHECK(error_of(with([](auto& m) { m.name = "ab"; })) == "inconsistent");
  CHECK(error_of(with([](auto& m) { m.method = 8; })) == "inconsistent");
  for (const std::uint64_t crc : {0U, 1U}) CHECK(error_of(with([crc](auto& m) { m.crc = crc; })) == "inconsistent");
  CHECK(error_of(with([](auto& m) { m.stored_size = 4; })) == "inconsistent");
  CHECK(error_of(with([](auto& m) { m.flags = 1; })) == "unsupported");
  CHECK(error_of(zip_of({{.name = "a", .flags = 1}})) == "unsupported");
  CHECK(error_of(zip_of({{.name = "a", .flags = 1U << 13U}})) == "unsupported");
  CHECK(error_of(zip_of({{.name = "a", .method = 12}})) == "unsupported");
  CHECK(error_of(zip_of({{.name = "a", .data = "12", .size = 3}})) == "inconsistent");
  CHECK(error_of(zip_of({{.name = "a", .disk = 1}})) == "unsupported");
  CHECK(error_of(zip_of({{.name = "a"}, {.name = "b"}, {.name = "a"}})) == "inconsistent");
}

TEST_CASE("names of members are text, and not empty") {
  CHECK(error_of(zip_of({{.name = ""}})) == "malformed");
  CHECK(error_of(zip_of({{.name = std::string("a\0b", 3)}})) == "malformed");
  CHECK(error_of(zip_of({{.name = "a"}, {.name = "\u00e9"}})) == "malformed");
  CHECK(error_of(zip_of({{.name = "\xe9", .flags = 1U << 11U}})) == "malformed");
}

TEST_CASE("the directory of a zip archive and its members have their places") {
  const ZipMember one{.name = "a", .data = "12345"};
  const auto body = local_record(one) + one.data;
  const auto directory = central_record(one);
  const auto file = [&](std::uint64_t count, std::uint64_t length, std::uint64_t offset) {
    return body + directory + end_record(count, length, offset);
  };
  CHECK(error_of(file(1, directory.size(), body.size())) == "accepted");
  CHECK(error_of("") == "truncated");
  CHECK(error_of(body) == "truncated");
  CHECK(error_of(file(1, directory.size(), body.size()) + "x") == "truncated");
  CHECK(error_of(file(2, directory.size(), body.size())) == "inconsistent");
  CHECK(error_of(file(1, directory.size() - 1, body.size())) == "out_of_bounds");
  CHECK(error_of(file(1, directory.size() - 1, body.size() + 1)) == "malformed");
  CHECK(error_of(file(1, 0xFFFFFFFF, 0xFFFFFFFF)) == "out_of_bounds");
  CHECK(error_of("x" + file(1, directory.size(), body.size())) == "out_of_bounds");
  CHECK(error_of("x" + file(1, directory.size(), body.size() + 1)) == "out_of_bounds");
  CHECK(error_of(body + directory + end_record(1, directory.size(), body.size(), "", 1)) == "unsupported");
  auto far = one;
  far.at = 0xFFFFFFF0;
  CHECK(error_of(disagreeing(one, far)) == "out_of_bounds");
  auto long_one = one;
  long_one.stored_size = 6;
  CHECK(error_of(disagreeing(long_one, long_one)) == "out_of_bounds");
}

TEST_CASE("no member lies over another one") {
  // The second member lies in the data of the first.
  const ZipMember inner{.name = "b", .data = "12", .at = 31};
  const ZipMember outer{.name = "a", .data = local_record(inner) + inner.data};
  const auto body = local_record(outer) + outer.data;
  const auto directory = central_record(outer) + central_record(inner);
  CHECK(error_of(body + directory + end_record(2, directory.size(), body.size())) == "inconsistent");
  const ZipMember same{.name = "a", .data = "1"};
  const auto twice = central_record(same) + central_record(same);
  CHECK(error_of(local_record(same) + "1" + twice + end_record(2, twice.size(), 32)) == "inconsistent");
}

TEST_CASE("a zip archive cut or flipped anywhere is refused, or its members lie inside it") {
  const auto good = zip_of({{.name = "a", .data = "first"}, {.name = "b", .data = "second", .method = 8, .size = 9}});
  check_damaged(good, [](Bytes file) {
    std::vector<ByteRange> found;
    for (const auto& member : zip::members(file)) found.push_back(member.data);
    return found;
  });
}

TEST_CASE("members that share one long header are refused before it is read for each of them") {
  std::string extra;
  while (extra.size() < 60'000) extra += little(2, 2) + little(0, 2);
  extra += little(1, 2) + little(16, 2) + little(0, 16);
  const ZipMember member{.name = "a", .stored_size = 0xFFFFFFFF, .size = 0xFFFFFFFF, .extra = extra};
  const ZipMember entry{.name = "a"};
  const auto file = local_record(member);
  std::string directory;
  for (int i = 0; i < 1000; ++i) directory += central_record(entry);
  CHECK(error_of(file + directory + end_record(1000, directory.size(), file.size())) == "too_costly");
}

}  // namespace onecopy
