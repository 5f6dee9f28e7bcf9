// Zip archives byte by byte, right ones and those that lie: each record can be given what it should not say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onecopy::tests {

inline std::string little(std::uint64_t value, unsigned bytes) {
  std::string text;
  for (unsigned i = 0; i < bytes; ++i, value >>= 8U) text.push_back(static_cast<char>(value & 0xFFU));
  return text;
}

struct ZipMember {
  std::string name = {};
  std::string data = {};
  std::uint64_t flags = 0;
  std::uint64_t method = 0;
  std::uint64_t crc = 0;
  std::optional<std::uint64_t> stored_size = {};  // what the records say, if not the truth
  std::optional<std::uint64_t> size = {};
  std::uint64_t disk = 0;
  std::uint64_t at = 0;
  std::string extra = {};

  std::uint64_t said_stored() const { return stored_size.value_or(data.size()); }
  std::uint64_t said_size() const { return size.value_or(said_stored()); }
};

inline std::string local_record(const ZipMember& member) {
  return "PK\3\4" + little(20, 2) + little(member.flags, 2) + little(member.method, 2) + little(0, 4) +
         little(member.crc, 4) + little(member.said_stored(), 4) + little(member.said_size(), 4) +
         little(member.name.size(), 2) + little(member.extra.size(), 2) + member.name + member.extra;
}

inline std::string central_record(const ZipMember& member) {
  return "PK\1\2" + little(20, 2) + little(20, 2) + little(member.flags, 2) + little(member.method, 2) + little(0, 4) +
         little(member.crc, 4) + little(member.said_stored(), 4) + little(member.said_size(), 4) +
         little(member.name.size(), 2) + little(member.extra.size(), 2) + little(0, 2) + little(member.disk, 2) +
         little(0, 6) + little(member.at, 4) + member.name + member.extra;
}

inline std::string end_record(std::uint64_t count, std::uint64_t length, std::uint64_t offset,
                              std::string_view comment = {}, std::uint64_t disk = 0) {
  return "PK\5\6" + little(disk, 2) + little(disk, 2) + little(count, 2) + little(count, 2) + little(length, 4) +
         little(offset, 4) + little(comment.size(), 2) + std::string(comment);
}

// The zip64 end record and its locator; `at`: where the record begins.
inline std::string wide_end_records(std::uint64_t count, std::uint64_t length, std::uint64_t offset, std::uint64_t at) {
  return std::string("PK\6\6") + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(count, 8) +
         little(count, 8) + little(length, 8) + little(offset, 8) + "PK\6\7" + little(0, 4) + little(at, 8) +
         little(1, 4);
}

// The archive of these members, each where it says it is: `at` is set.
inline std::string zip_of(std::vector<ZipMember> members, std::string_view comment = {}) {
  std::string file;
  std::string directory;
  for (ZipMember& member : members) {
    member.at = file.size();
    file += local_record(member) + member.data;
    directory += central_record(member);
  }
  return file + directory + end_record(members.size(), directory.size(), file.size(), comment);
}

}  // namespace onecopy::tests
