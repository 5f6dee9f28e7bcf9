#include "formats/wire/zip.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

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

std::string_view text(Bytes bytes) noexcept { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

[[noreturn]] void fail(const std::string& what, FormatError::Kind kind = FormatError::malformed) {
  reject(kind, "zip: " + what);
}

// Takes numbers one after the other from bytes that end.
class Fields {
 public:
  Fields(Bytes file, std::uint64_t begin, std::uint64_t end, std::string_view what)
      : file_(file), at_(begin), end_(end), what_(what) {}

  std::uint64_t take(unsigned size) { return number(file_, claim(size), size); }
  Bytes bytes(std::uint64_t size) { return file_.subspan(claim(size), size); }
  std::uint64_t at() const noexcept { return at_; }
  std::uint64_t left() const noexcept { return end_ - at_; }

 private:
  std::uint64_t claim(std::uint64_t size) {
    if (!in_bounds(end_, at_, size))
      fail(
          concat(what_, " is cut off at byte ", at_, ": it needs ", size, " more bytes, and ", end_ - at_, " are left"),
          FormatError::truncated);
    const std::uint64_t begin = at_;
    at_ += size;
    return begin;
  }

  Bytes file_;
  std::uint64_t at_;
  std::uint64_t end_;
  std::string_view what_;
};

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
  fail("there is no end of a central directory (is the file cut off?)", FormatError::truncated);
}

// What the 32-bit end record says must be what the 64-bit one says, where it says anything.
void agree(std::uint64_t narrow, std::uint64_t full, std::uint64_t wide, std::string_view what) {
  if (narrow != full && narrow != wide)
    fail(concat("the two end records disagree about ", what, ": ", narrow, " and ", wide), FormatError::inconsistent);
}

// The zip64 end record that the locator before `end` leads to; `directory` is what the other said. Gives its place.
std::uint64_t read_end64(Bytes file, std::uint64_t end, Directory& directory) {
  Fields locator(file, end - locator_size + 4, end, "the zip64 locator");
  const std::uint64_t disk = locator.take(4);
  const std::uint64_t at = locator.take(8);
  if (disk != 0 || locator.take(4) > 1) fail("the archive has several disks", FormatError::unsupported);
  const std::uint64_t limit = end - locator_size;
  if (!in_bounds(limit, at, end64_size) || !has_signature(file, at, end64_signature) ||
      number(file, at + 4, 8) != limit - at - 12)
    fail(concat("the zip64 end record does not lie at byte ", at, ", right before its locator"),
         FormatError::inconsistent);
  Fields fields(file, at + 16, limit, "the zip64 end record");
  if (fields.take(4) != 0 || fields.take(4) != 0) fail("the archive has several disks", FormatError::unsupported);
  Directory wide;
  const std::uint64_t here = fields.take(8);
  wide.count = fields.take(8);
  wide.range.length = fields.take(8);
  wide.range.offset = fields.take(8);
  if (here != wide.count) fail("the archive has several disks", FormatError::unsupported);
  agree(directory.count, full16, wide.count, "the number of members");
  agree(directory.range.length, full32, wide.range.length, "the directory's size");
  agree(directory.range.offset, full32, wide.range.offset, "the directory's place");
  directory = wide;
  return at;
}

Directory find_directory(Bytes file) {
  std::uint64_t end = find_end(file);
  Fields fields(file, end + 4, file.size(), "the end record");
  const std::array disks{fields.take(2), fields.take(2)};
  Directory directory;
  const std::uint64_t here = fields.take(2);
  directory.count = fields.take(2);
  directory.range.length = fields.take(4);
  directory.range.offset = fields.take(4);
  const bool is_wide = end >= locator_size && has_signature(file, end - locator_size, locator_signature);
  for (const std::uint64_t disk : disks)
    if (disk != 0 && !(is_wide && disk == full16)) fail("the archive has several disks", FormatError::unsupported);
  if (here != directory.count) fail("the archive has several disks", FormatError::unsupported);
  if (is_wide) end = read_end64(file, end, directory);
  const auto& [offset, length] = directory.range;
  if (!in_bounds(end, offset, length) || length != end - offset)
    fail(concat("the directory would have ", length, " bytes from byte ", offset,
                ", but its end record begins at byte ", end),
         FormatError::out_of_bounds);
  return directory;
}

// What a header says of a member: two of them must say the same.
struct Claim {
  std::string name;
  std::uint64_t flags = 0;
  std::uint64_t method = 0;
  std::uint64_t crc = 0;
  std::uint64_t stored_size = 0;
  std::uint64_t size = 0;
  std::uint64_t header = 0;  // where the member begins
};

[[noreturn]] void fail(const Claim& claim, const std::string& what, FormatError::Kind kind = FormatError::malformed) {
  fail(describe(claim.name) + ' ' + what, kind);
}

// Numbers that do not fit 32 bits stand in an extra field, in this order, those only.
void widen(const Claim& claim, Bytes extra, std::initializer_list<std::uint64_t*> numbers, WorkBudget& budget) {
  const auto is_wide = [](const std::uint64_t* one) { return *one == full32; };
  if (std::ranges::none_of(numbers, is_wide)) return;
  budget.spend(extra.size());
  Fields fields(extra, 0, extra.size(), "an extra field");
  while (fields.left() >= 4) {
    const std::uint64_t id = fields.take(2);
    const Bytes field = fields.bytes(fields.take(2));
    if (id != zip64_extra) continue;
    Fields wide(field, 0, field.size(), "the zip64 field of a member");
    for (std::uint64_t* one : numbers)
      if (is_wide(one)) *one = wide.take(8);
    return;
  }
  fail(claim, "has sizes of more than 32 bits, but no zip64 field");
}

void check_name(const Claim& claim, std::uint64_t count) {
  const std::string who = "the name of member " + std::to_string(count);
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (claim.name.empty()) fail(who + " is empty");
  if (claim.name.find('\0') != std::string_view::npos) fail(who + " has a NUL in it");
  if ((claim.flags & name_is_utf8) == 0 && !std::ranges::all_of(claim.name, is_ascii))
    fail(who + " is not ASCII, and not marked as UTF-8");
  if (!json::is_utf8(claim.name)) fail(who + " is not UTF-8");
}

// The next entry of the directory, the `count`th.
Claim read_central(Fields& fields, std::uint64_t count, WorkBudget& budget) {
  if (fields.take(4) != central_signature)
    fail(concat("at byte ", fields.at() - 4, " begins no entry of the directory"));
  Claim claim;
  (void)fields.take(4);  // versions of who wrote it and who can read it
  claim.flags = fields.take(2);
  claim.method = fields.take(2);
  (void)fields.take(4);  // when
  claim.crc = fields.take(4);
  claim.stored_size = fields.take(4);
  claim.size = fields.take(4);
  const std::uint64_t name_size = fields.take(2);
  const std::uint64_t extra_size = fields.take(2);
  const std::uint64_t comment_size = fields.take(2);
  const std::uint64_t disk = fields.take(2);
  (void)fields.take(6);  // attributes
  claim.header = fields.take(4);
  claim.name = text(fields.bytes(name_size));
  check_name(claim, count);
  if (disk != 0) fail(claim, "lies on another disk", FormatError::unsupported);
  widen(claim, fields.bytes(extra_size), {&claim.size, &claim.stored_size, &claim.header}, budget);
  (void)fields.bytes(comment_size);
  return claim;
}

// The member's own header, which ends where its data begins. It must have the name that the directory has.
Claim read_local(Fields& fields, const Claim& central, WorkBudget& budget) {
  Claim claim;
  (void)fields.take(2);
  claim.flags = fields.take(2);
  claim.method = fields.take(2);
  (void)fields.take(4);
  claim.crc = fields.take(4);
  claim.stored_size = fields.take(4);
  claim.size = fields.take(4);
  const std::uint64_t name_size = fields.take(2);
  const std::uint64_t extra_size = fields.take(2);
  if (text(fields.bytes(name_size)) != central.name)
    fail(central, "has another name in its own header", FormatError::inconsistent);
  widen(central, fields.bytes(extra_size), {&claim.size, &claim.stored_size}, budget);
  return claim;
}

void hold_against(const Claim& central, const Claim& local) {
  if (((central.flags | local.flags) & unreadable) != 0)
    fail(central, "is encrypted or a patch", FormatError::unsupported);
  if (local.method != central.method) fail(central, "has another method in its own header", FormatError::inconsistent);
  const auto same = [&](std::uint64_t here, std::uint64_t there) {
    return here == there || (here == 0 && (local.flags & sizes_follow) != 0);
  };
  if (!same(local.stored_size, central.stored_size) || !same(local.size, central.size))
    fail(central, concat("has ", local.size, " bytes in its own header, and ", central.size, " in the directory"),
         FormatError::inconsistent);
  if (!same(local.crc, central.crc)) fail(central, "has another checksum in its own header", FormatError::inconsistent);
}

// `limit`: where the directory begins.
Member place(Bytes file, Claim central, std::uint64_t limit, WorkBudget& budget) {
  if (!in_bounds(limit, central.header, local_size) || !has_signature(file, central.header, local_signature))
    fail(central, concat("does not begin at byte ", central.header, ", the offset in the directory"),
         FormatError::out_of_bounds);
  Fields fields(file, central.header + 4, limit, "the header of a member");
  hold_against(central, read_local(fields, central, budget));
  if (central.method != 0 && central.method != 8)
    fail(central, concat("is packed by method ", central.method, ": neither stored nor deflated"),
         FormatError::unsupported);
  if (central.method == 0 && central.size != central.stored_size)
    fail(central, concat("is stored, but has ", central.stored_size, " bytes here and ", central.size, " unpacked"),
         FormatError::inconsistent);
  if (!in_bounds(limit, fields.at(), central.stored_size))
    fail(central,
         concat("has ", central.stored_size, " bytes from byte ", fields.at(), ", but the directory begins at byte ",
                limit),
         FormatError::out_of_bounds);
  Member member;
  member.name = std::move(central.name);
  member.method = central.method == 0 ? Method::stored : Method::deflated;
  member.data = {fields.at(), central.stored_size};
  member.whole = {central.header, fields.at() - central.header + central.stored_size};
  return member;
}

// Each of both would let one archive show two readers different things.
void reject_overlaps_and_twins(const std::vector<Member>& members) {
  std::vector<const Member*> order(members.size());
  std::ranges::transform(members, order.begin(), [](const Member& member) { return &member; });
  std::ranges::sort(order, {}, [](const Member* member) { return member->whole.offset; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i]->whole.offset - order[i - 1]->whole.offset < order[i - 1]->whole.length)
      fail(describe(order[i]->name) + " begins inside " + describe(order[i - 1]->name), FormatError::inconsistent);
  const auto name_of = [](const Member* member) -> const std::string& { return member->name; };
  std::ranges::sort(order, {}, name_of);
  const auto twin = std::ranges::adjacent_find(order, {}, name_of);
  if (twin != order.end()) fail(describe((*twin)->name) + " is in the archive twice", FormatError::inconsistent);
}

}  // namespace

std::string_view first_name(Bytes file) noexcept {
  if (!in_bounds(file.size(), 0, local_size) || !has_signature(file, 0, local_signature)) return {};
  const std::uint64_t size = number(file, local_size - 4, 2);
  return in_bounds(file.size(), local_size, size) ? text(file.subspan(local_size, size)) : std::string_view();
}

std::vector<Member> members(Bytes file) {
  const Directory directory = find_directory(file);
  const std::uint64_t limit = directory.range.offset;
  Fields fields(file, limit, limit + directory.range.length, "the directory");
  std::vector<Member> found;
  // Members lie side by side, so the extra fields of all of them are shorter than the file.
  WorkBudget budget(file.size(), "zip: members share their headers, which together are longer than the file");
  while (fields.left() != 0)
    found.push_back(place(file, read_central(fields, found.size() + 1, budget), limit, budget));
  if (found.size() != directory.count)
    fail(concat("the directory has ", found.size(), " members, but its end record counts ", directory.count),
         FormatError::inconsistent);
  reject_overlaps_and_twins(found);
  return found;
}

}  // namespace onecopy::zip
