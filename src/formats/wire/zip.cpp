#include "formats/wire/zip.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "formats/wire/cursor.hpp"
#include "formats/wire/json.hpp"
#include "formats/work_budget.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::zip {
namespace {

using json::describe;

constexpr std::uint64_t local_signature = 0x04034B50;
constexpr std::uint64_t central_signature = 0x02014B50;
constexpr std::uint64_t end_signature = 0x06054B50;
constexpr std::uint64_t end64_signature = 0x06064B50;
constexpr std::uint64_t locator_signature = 0x07064B50;

constexpr std::uint64_t local_size = 30;  // of each record, before what varies
constexpr std::uint64_t end_size = 22;
constexpr std::uint64_t end64_size = 56;
constexpr std::uint64_t locator_size = 20;
constexpr std::uint64_t longest_comment = 0xFFFF;

constexpr std::uint64_t full16 = 0xFFFF;  // "look in the zip64 record"
constexpr std::uint64_t full32 = 0xFFFFFFFF;
constexpr std::uint64_t zip64_extra = 1;

constexpr std::uint64_t sizes_follow = 1U << 3U;   // flag: the member's header may leave sizes to the directory
constexpr std::uint64_t name_is_utf8 = 1U << 11U;  // flag
constexpr std::uint64_t unreadable = 1U | 1U << 5U | 1U << 6U | 1U << 13U;  // flags: encrypted, patches, masked headers

std::uint64_t number(Bytes bytes, std::uint64_t at, unsigned size) noexcept {
  return little_endian(bytes.subspan(at, size));
}

bool has_signature(Bytes file, std::uint64_t at, std::uint64_t signature) noexcept {
  return in_bounds(file.size(), at, 4) && number(file, at, 4) == signature;
}

template <class... Parts>
[[noreturn]] void fail(FormatError::Kind kind, const Parts&... parts) {
  reject(kind, "zip: ", parts...);
}

Cursor cursor_over(std::string_view what, Bytes file, std::uint64_t begin, std::uint64_t end) noexcept {
  return {"zip", what, file, {begin, end - begin}};
}

struct Directory {
  ByteRange range;
  std::uint64_t count = 0;
};

// The last end record whose comment ends with the file.
std::uint64_t find_end(Bytes file) {
  if (file.size() >= end_size) {
    const std::uint64_t last = file.size() - end_size;
    const std::uint64_t first = last - std::min(last, longest_comment);
    for (std::uint64_t at = last;; --at) {
      if (has_signature(file, at, end_signature) && number(file, at + end_size - 2, 2) == last - at) return at;
      if (at == first) break;
    }
  }
  fail(FormatError::truncated, "the end of the central directory is missing (is the file truncated?)");
}

// A value in the 32-bit end record must equal that of the 64-bit one, unless it refers to it.
void agree(std::uint64_t narrow, std::uint64_t full, std::uint64_t wide, std::string_view what) {
  if (narrow != full && narrow != wide)
    fail(FormatError::inconsistent, "the two end records contain different values for ", what, ": ", narrow, " and ",
         wide);
}

// Reads the zip64 end record that the locator before `end` leads to; `directory` is from the other. Returns its place.
std::uint64_t read_end64(Bytes file, std::uint64_t end, Directory& directory) {
  Cursor locator = cursor_over("the zip64 locator", file, end - locator_size + 4, end);
  const std::uint64_t disk = locator.number(4);
  const std::uint64_t at = locator.number(8);
  if (disk != 0 || locator.number(4) > 1)
    fail(FormatError::unsupported, "archives that span several disks are not supported");
  const std::uint64_t limit = end - locator_size;
  if (!in_bounds(limit, at, end64_size) || !has_signature(file, at, end64_signature) ||
      number(file, at + 4, 8) != limit - at - 12)
    fail(FormatError::inconsistent, "the zip64 end record is not at byte ", at, ", directly before its locator");
  Cursor fields = cursor_over("the zip64 end record", file, at + 16, limit);
  if (fields.number(4) != 0 || fields.number(4) != 0)
    fail(FormatError::unsupported, "archives that span several disks are not supported");
  Directory wide;
  const std::uint64_t here = fields.number(8);
  wide.count = fields.number(8);
  wide.range.length = fields.number(8);
  wide.range.offset = fields.number(8);
  if (here != wide.count) fail(FormatError::unsupported, "archives that span several disks are not supported");
  agree(directory.count, full16, wide.count, "the number of members");
  agree(directory.range.length, full32, wide.range.length, "the size of the directory");
  agree(directory.range.offset, full32, wide.range.offset, "the offset of the directory");
  directory = wide;
  return at;
}

Directory find_directory(Bytes file) {
  std::uint64_t end = find_end(file);
  Cursor fields = cursor_over("the end record", file, end + 4, file.size());
  const std::array disks{fields.number(2), fields.number(2)};
  Directory directory;
  const std::uint64_t here = fields.number(2);
  directory.count = fields.number(2);
  directory.range.length = fields.number(4);
  directory.range.offset = fields.number(4);
  const bool is_wide = end >= locator_size && has_signature(file, end - locator_size, locator_signature);
  for (const std::uint64_t disk : disks)
    if (disk != 0 && !(is_wide && disk == full16))
      fail(FormatError::unsupported, "archives that span several disks are not supported");
  if (here != directory.count) fail(FormatError::unsupported, "archives that span several disks are not supported");
  if (is_wide) end = read_end64(file, end, directory);
  const auto& [offset, length] = directory.range;
  if (!in_bounds(end, offset, length) || length != end - offset)
    fail(FormatError::out_of_bounds, "the directory declares ", length, " bytes from byte ", offset,
         " on, but its end record begins at byte ", end);
  return directory;
}

// What a header declares about a member: both headers must agree.
struct Claim {
  std::string name;
  std::uint64_t flags = 0;
  std::uint64_t method = 0;
  std::uint64_t crc = 0;
  std::uint64_t stored_size = 0;
  std::uint64_t size = 0;
  std::uint64_t header = 0;  // where the member begins
};

// Numbers that do not fit 32 bits stand in an extra field, in this order, those only.
void widen(const Claim& claim, Cursor extra, std::initializer_list<std::uint64_t*> numbers, WorkBudget& budget) {
  const auto is_wide = [](const std::uint64_t* one) { return *one == full32; };
  if (std::ranges::none_of(numbers, is_wide)) return;
  budget.spend(extra.left());
  while (extra.left() >= 4) {
    const std::uint64_t id = extra.number(2);
    Cursor field = extra.inside(extra.number(2), "an extra field");
    if (id != zip64_extra) continue;
    for (std::uint64_t* one : numbers)
      if (is_wide(one)) *one = field.number(8);
    return;
  }
  fail(FormatError::malformed, describe(claim.name), " declares sizes of more than 32 bits, but has no zip64 field");
}

void check_name(const Claim& claim, std::uint64_t count) {
  const std::string who = "the name of member " + std::to_string(count);
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (claim.name.empty()) fail(FormatError::malformed, who, " is empty");
  if (claim.name.find('\0') != std::string_view::npos) fail(FormatError::malformed, who, " contains a NUL");
  if ((claim.flags & name_is_utf8) == 0 && !std::ranges::all_of(claim.name, is_ascii))
    fail(FormatError::malformed, who, " is neither ASCII nor marked as UTF-8");
  if (!json::is_utf8(claim.name)) fail(FormatError::malformed, who, " is not UTF-8");
}

// The fields that follow the version in both headers of a member.
Claim read_claim(Cursor& fields) {
  Claim claim;
  claim.flags = fields.number(2);
  claim.method = fields.number(2);
  (void)fields.number(4);  // when
  claim.crc = fields.number(4);
  claim.stored_size = fields.number(4);
  claim.size = fields.number(4);
  return claim;
}

// The next entry of the directory, the `count`th.
Claim read_central(Cursor& fields, std::uint64_t count, WorkBudget& budget) {
  if (fields.number(4) != central_signature)
    fail(FormatError::malformed, "there is no directory entry at byte ", fields.position() - 4);
  (void)fields.number(4);  // versions of its writer, and needed to read it
  Claim claim = read_claim(fields);
  const std::uint64_t name_size = fields.number(2);
  const std::uint64_t extra_size = fields.number(2);
  const std::uint64_t comment_size = fields.number(2);
  const std::uint64_t disk = fields.number(2);
  (void)fields.number(6);  // attributes
  claim.header = fields.number(4);
  claim.name = fields.text(name_size);
  check_name(claim, count);
  if (disk != 0) fail(FormatError::unsupported, describe(claim.name), " is on another disk");
  widen(claim, fields.inside(extra_size, "an extra field"), {&claim.size, &claim.stored_size, &claim.header}, budget);
  (void)fields.bytes(comment_size);
  return claim;
}

// The member's own header, which ends where its data begins. It must have the name that the directory has.
Claim read_local(Cursor& fields, const Claim& central, WorkBudget& budget) {
  (void)fields.number(2);
  Claim claim = read_claim(fields);
  const std::uint64_t name_size = fields.number(2);
  const std::uint64_t extra_size = fields.number(2);
  if (fields.text(name_size) != central.name)
    fail(FormatError::inconsistent, describe(central.name), " has a different name in its own header");
  widen(central, fields.inside(extra_size, "an extra field"), {&claim.size, &claim.stored_size}, budget);
  return claim;
}

void hold_against(const Claim& central, const Claim& local) {
  if (((central.flags | local.flags) & unreadable) != 0)
    fail(FormatError::unsupported, describe(central.name), " is encrypted, or contains a patch");
  if (local.method != central.method)
    fail(FormatError::inconsistent, describe(central.name), " has a different method in its own header");
  const auto same = [&](std::uint64_t here, std::uint64_t there) {
    return here == there || (here == 0 && (local.flags & sizes_follow) != 0);
  };
  if (!same(local.stored_size, central.stored_size) || !same(local.size, central.size))
    fail(FormatError::inconsistent, describe(central.name), " has ", local.size, " bytes in its own header, but ",
         central.size, " in the directory");
  if (!same(local.crc, central.crc))
    fail(FormatError::inconsistent, describe(central.name), " has a different checksum in its own header");
}

// `limit`: where the directory begins.
Member place(Bytes file, Claim central, std::uint64_t limit, WorkBudget& budget) {
  if (!in_bounds(limit, central.header, local_size) || !has_signature(file, central.header, local_signature))
    fail(FormatError::out_of_bounds, describe(central.name), " does not begin at byte ", central.header,
         ", the offset in the directory");
  Cursor fields = cursor_over("the header of a member", file, central.header + 4, limit);
  hold_against(central, read_local(fields, central, budget));
  if (central.method != 0 && central.method != 8)
    fail(FormatError::unsupported, describe(central.name), " is compressed by method ", central.method,
         ", which is not supported");
  if (central.method == 0 && central.size != central.stored_size)
    fail(FormatError::inconsistent, describe(central.name), " is stored, but has ", central.stored_size,
         " bytes in the archive and ", central.size, " unpacked");
  if (!in_bounds(limit, fields.position(), central.stored_size))
    fail(FormatError::out_of_bounds, describe(central.name), " has ", central.stored_size, " bytes from byte ",
         fields.position(), " on, but the directory begins at byte ", limit);
  Member member;
  member.name = std::move(central.name);
  member.method = central.method == 0 ? Method::stored : Method::deflated;
  member.data = {fields.position(), central.stored_size};
  member.whole = {central.header, fields.position() - central.header + central.stored_size};
  return member;
}

// With either, two readers could see different contents in one archive.
void reject_overlaps_and_twins(const std::vector<Member>& members) {
  std::vector<const Member*> order(members.size());
  std::ranges::transform(members, order.begin(), [](const Member& member) { return &member; });
  std::ranges::sort(order, {}, [](const Member* member) { return member->whole.offset; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i]->whole.offset - order[i - 1]->whole.offset < order[i - 1]->whole.length)
      fail(FormatError::inconsistent, describe(order[i]->name), " begins inside ", describe(order[i - 1]->name));
  const auto name_of = [](const Member* member) -> const std::string& { return member->name; };
  std::ranges::sort(order, {}, name_of);
  const auto twin = std::ranges::adjacent_find(order, {}, name_of);
  if (twin != order.end()) fail(FormatError::inconsistent, describe((*twin)->name), " is in the archive twice");
}

}  // namespace

std::string_view first_name(Bytes file) noexcept {
  if (!in_bounds(file.size(), 0, local_size) || !has_signature(file, 0, local_signature)) return {};
  const std::uint64_t size = number(file, local_size - 4, 2);
  return in_bounds(file.size(), local_size, size) ? text_of(file.subspan(local_size, size)) : std::string_view();
}

std::vector<Member> members(Bytes file) {
  const Directory directory = find_directory(file);
  const std::uint64_t limit = directory.range.offset;
  Cursor fields("zip", "the directory", file, directory.range);
  std::vector<Member> found;
  // Members lie side by side, so the extra fields of all of them are shorter than the file.
  WorkBudget budget(file.size(), "zip: members share their headers, whose total size exceeds the file");
  while (fields.left() != 0)
    found.push_back(place(file, read_central(fields, found.size() + 1, budget), limit, budget));
  if (found.size() != directory.count)
    fail(FormatError::inconsistent, "the directory has ", found.size(), " members, but its end record declares ",
         directory.count);
  reject_overlaps_and_twins(found);
  return found;
}

}  // namespace onecopy::zip
