#include <doctest/doctest.h>

#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/wire/zip.hpp"
#include "onecopy/base/error.hpp"
#include "zip_of.hpp"

namespace onecopy {
namespace {

using tests::central_record;
using tests::end_record;
using tests::little;
using tests::local_record;
using tests::wide_end_records;
using tests::zip_of;
using tests::ZipMember;

Bytes bytes_of(std::string_view file) { return std::as_bytes(std::span(file.data(), file.size())); }

std::string error_of(std::string_view file) {
  try {
    (void)zip::members(bytes_of(file));
  } catch (const FormatError& error) {
    return error.what();
  }
  return "no error";
}

bool refuses(std::string_view file, std::string_view message) {
  const auto error = error_of(file);
  CAPTURE(error);
  CHECK(error.find(message) != std::string::npos);
  return true;
}

std::string_view data_of(std::string_view file, const zip::Member& member) {
  return file.substr(member.data.offset, member.data.length);
}

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
              {.name = "b/c", .data = "packed", .method = 8, .size = 100},
              {.name = "\u00e9", .data = "", .flags = 1U << 11U, .extra = little(0x4246, 2) + little(2, 2) + "ZZ"}},
             "a comment, PK\5\6 in it");
  CHECK(zip::first_name(bytes_of(file)) == "a");
  const auto members = zip::members(bytes_of(file));
  REQUIRE(members.size() == 3);
  CHECK(members[0].name == "a");
  CHECK(data_of(file, members[0]) == "first");
  CHECK(members[1].name == "b/c");
  CHECK(members[1].method == zip::Method::deflated);
  CHECK(data_of(file, members[1]) == "packed");
  CHECK(members[2].name == "\u00e9");
  CHECK(members[2].data.length == 0);
  CHECK(zip::members(bytes_of(zip_of({}))).empty());
  CHECK(zip::first_name(bytes_of(zip_of({}))).empty());
  CHECK(zip::first_name({}).empty());
}

TEST_CASE("a member's own header may leave sizes to the directory, where it says so") {
  const ZipMember central{.name = "a", .data = "12345", .flags = 8, .crc = 7};
  const ZipMember local{.name = "a", .data = "12345", .flags = 8, .stored_size = 0};
  CHECK(error_of(disagreeing(local, central)) == "no error");
  auto silent = local;
  silent.flags = 0;
  CHECK(refuses(disagreeing(silent, central), "'a' has 0 bytes in its own header, and 5 in the directory"));
}

TEST_CASE("sizes of more than 32 bits stand in the zip64 records") {
  const std::string both = little(1, 2) + little(16, 2) + little(5, 8) + little(5, 8);
  const ZipMember wide{.name = "a", .data = "12345", .stored_size = 0xFFFFFFFF, .extra = both};
  const ZipMember narrow{.name = "a", .data = "12345"};
  CHECK(error_of(disagreeing(wide, narrow)) == "no error");  // as numpy.savez writes it
  CHECK(error_of(disagreeing(wide, wide)) == "no error");
  auto without = wide;
  without.extra = little(0x4246, 2) + little(0, 2);
  CHECK(refuses(disagreeing(narrow, without), "'a' has sizes of more than 32 bits, but no zip64 field"));
  without.extra = little(1, 2) + little(8, 2) + little(5, 8);
  CHECK(refuses(disagreeing(narrow, without), "the zip64 field of a member is cut off"));
  without.extra = little(1, 2) + little(80, 2) + little(5, 8);
  CHECK(refuses(disagreeing(narrow, without), "an extra field is cut off"));

  const auto body = local_record(narrow) + narrow.data;
  const auto directory = central_record(narrow);
  const std::uint64_t at = body.size() + directory.size();
  const auto end = end_record(1, directory.size(), body.size());
  const auto records = wide_end_records(1, directory.size(), body.size(), at);
  CHECK(error_of(body + directory + records + end) == "no error");
  CHECK(error_of(body + directory + records + end_record(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, "", 0xFFFF)) == "no error");
  CHECK(refuses(body + directory + records + end_record(2, directory.size(), body.size()),
                "disagree about the number of members: 2 and 1"));
  CHECK(refuses(body + directory + records + end_record(1, 3, body.size()), "disagree about the directory's size"));
  CHECK(
      refuses(body + directory + records + end_record(1, directory.size(), 3), "disagree about the directory's place"));
  for (const std::uint64_t wrong : {std::uint64_t{0}, at - 1, at + 1, UINT64_MAX})
    CHECK(refuses(body + directory + wide_end_records(1, directory.size(), body.size(), wrong) + end,
                  "the zip64 end record does not lie at byte " + std::to_string(wrong)));
}

TEST_CASE("disagreeing records of a zip archive are reported") {
  const ZipMember one{.name = "a", .data = "12345"};
  const auto with = [&](auto change) {
    auto changed = one;
    change(changed);
    return disagreeing(changed, one);
  };
  CHECK(error_of(disagreeing(one, one)) == "no error");
  CHECK(refuses(with([](auto& m) { m.name = "b"; }), "'a' has another name in its own header"));
  CHECK(refuses(with([](auto& m) { m.name = "ab"; }), "'a' has another name in its own header"));
  CHECK(refuses(with([](auto& m) { m.method = 8; }), "'a' has another method in its own header"));
  CHECK(refuses(with([](auto& m) { m.crc = 1; }), "'a' has another checksum in its own header"));
  CHECK(refuses(with([](auto& m) { m.stored_size = 4; }), "'a' has 4 bytes in its own header"));
  CHECK(refuses(with([](auto& m) { m.flags = 1; }), "'a' is encrypted"));
  CHECK(refuses(zip_of({{.name = "a", .flags = 1}}), "'a' is encrypted"));
  CHECK(refuses(zip_of({{.name = "a", .flags = 1U << 13U}}), "'a' is encrypted"));
  CHECK(refuses(zip_of({{.name = "a", .method = 12}}), "'a' is packed by method 12: neither stored nor deflated"));
  CHECK(
      refuses(zip_of({{.name = "a", .data = "12", .size = 3}}), "'a' is stored, but has 2 bytes here and 3 unpacked"));
  CHECK(refuses(zip_of({{.name = "a", .disk = 1}}), "'a' lies on another disk"));
  CHECK(refuses(zip_of({{.name = "a"}, {.name = "b"}, {.name = "a"}}), "'a' is in the archive twice"));
}

TEST_CASE("names of members are text, and not empty") {
  CHECK(refuses(zip_of({{.name = ""}}), "the name of member 1 is empty"));
  CHECK(refuses(zip_of({{.name = std::string("a\0b", 3)}}), "the name of member 1 has a NUL in it"));
  CHECK(refuses(zip_of({{.name = "a"}, {.name = "\u00e9"}}),
                "the name of member 2 is not ASCII, and not marked as UTF-8"));
  CHECK(refuses(zip_of({{.name = "\xe9", .flags = 1U << 11U}}), "the name of member 1 is not UTF-8"));
}

TEST_CASE("the directory of a zip archive and its members have their places") {
  const ZipMember one{.name = "a", .data = "12345"};
  const auto body = local_record(one) + one.data;
  const auto directory = central_record(one);
  const auto file = [&](std::uint64_t count, std::uint64_t length, std::uint64_t offset) {
    return body + directory + end_record(count, length, offset);
  };
  CHECK(error_of(file(1, directory.size(), body.size())) == "no error");
  CHECK(refuses("", "there is no end of a central directory (is the file cut off?)"));
  CHECK(refuses(body, "there is no end of a central directory"));
  CHECK(refuses(file(1, directory.size(), body.size()) + "x", "there is no end of a central directory"));
  CHECK(refuses(file(2, directory.size(), body.size()), "has 1 members, but its end record counts 2"));
  CHECK(refuses(file(1, directory.size() - 1, body.size()), "the directory would have 46 bytes from byte 36"));
  CHECK(refuses(file(1, directory.size() - 1, body.size() + 1), "begins no entry of the directory"));
  CHECK(refuses(file(1, 0xFFFFFFFF, 0xFFFFFFFF), "the directory would have 4294967295 bytes"));
  CHECK(refuses("x" + file(1, directory.size(), body.size()), "the directory would have 47 bytes from byte 36"));
  CHECK(refuses("x" + file(1, directory.size(), body.size() + 1), "'a' does not begin at byte 0"));
  CHECK(refuses(body + directory + end_record(1, directory.size(), body.size(), "", 1), "several disks"));
  auto far = one;
  far.at = 0xFFFFFFF0;
  CHECK(refuses(disagreeing(one, far), "'a' does not begin at byte 4294967280"));
  auto long_one = one;
  long_one.stored_size = 6;
  CHECK(refuses(disagreeing(long_one, long_one), "'a' has 6 bytes from byte 31, but the directory begins at byte 36"));
}

TEST_CASE("no member lies over another one") {
  // The second member lies in the data of the first.
  const ZipMember inner{.name = "b", .data = "12", .at = 31};
  const ZipMember outer{.name = "a", .data = local_record(inner) + inner.data};
  const auto body = local_record(outer) + outer.data;
  const auto directory = central_record(outer) + central_record(inner);
  CHECK(refuses(body + directory + end_record(2, directory.size(), body.size()), "'b' begins inside 'a'"));
  const ZipMember same{.name = "a", .data = "1"};
  const auto twice = central_record(same) + central_record(same);
  CHECK(refuses(local_record(same) + "1" + twice + end_record(2, twice.size(), 32), "'a' begins inside 'a'"));
}

TEST_CASE("a zip archive cut or flipped anywhere is refused, or its members lie inside it") {
  const auto good = zip_of({{.name = "a", .data = "first"}, {.name = "b", .data = "second", .method = 8, .size = 9}});
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(error_of(good.substr(0, size)) != "no error");
  std::mt19937_64 random(3);
  for (int round = 0; round < 20'000; ++round) {
    auto bad = good;
    for (std::uint64_t flips = random() % 3 + 1; flips > 0; --flips)
      bad[random() % bad.size()] ^= static_cast<char>(1U << (random() % 8));
    try {
      for (const auto& member : zip::members(bytes_of(bad)))
        REQUIRE(in_bounds(bad.size(), member.data.offset, member.data.length));
    } catch (const FormatError&) {
      continue;
    }
  }
}

}  // namespace onecopy
