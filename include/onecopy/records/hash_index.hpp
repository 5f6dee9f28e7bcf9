// The keys of a dict, found without decoding any: one look into the index and, nearly always, one at the right key.
//
//     const auto index = HashIndex::of(file);
//     if (const auto row = index.find(Key::of(std::string_view("a.jpg")))) use(file.rows().children[1], *row);
//
// Two keys are the same where Python holds them equal: 1, 1.0 and True are, "a" and b"a" are not, and NaN is like
// nothing. The index is one tensor of lines of 64 bytes, eight words each: 16 bits of the key's hash beside 48 of
// 1 + its row; 0 is a free word. A key stands in the line its hash leads to, or in the next one with room; three
// quarters are full. docs/formats/records.md has the hash. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/records/record_file.hpp"

namespace onecopy::records {

// A key as it is compared: what is equal in Python has one form.
struct Key {
  enum class Kind : std::uint8_t { none, integer, wide, real, text, bytes, tuple };

  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also of booleans, and of reals that are one
  double real = 0;           // with a fraction, infinite or NaN
  std::string_view text;     // of text and bytes: not owned
  std::string wide;          // integers beyond 64 bits: two's complement, little endian, as short as can be
  std::vector<Key> items;

  static Key of(std::int64_t value);
  static Key of(double value);
  static Key of(std::string_view utf8);
  static Key of_bytes(std::string_view bytes);
  static Key of_bigint(std::string_view little_endian);  // two's complement of any length
  static Key of(std::vector<Key> items);

  // Value i of a node. Throws FormatError where it is of a kind that no key has.
  static Key of(const Node& node, std::uint64_t i);

  std::uint64_t hash() const noexcept;
  friend bool operator==(const Key& a, const Key& b) noexcept;
};

class HashIndex {
 public:
  static constexpr std::string_view tensor = "records.0.index.slots";
  static constexpr std::size_t words_in_line = 8;

  // Keeps the file. Throws FormatError: it holds no dict, or has no index of whole lines.
  static HashIndex of(RecordFile file);

  // The row of a key. FormatError where a damaged index leads out of the rows.
  std::optional<std::uint64_t> find(const Key& key) const;

  // The words of the index over these keys. Throws FormatError: a key twice, or one of a kind that is no key.
  static std::vector<std::uint64_t> build(const Node& keys);

 private:
  HashIndex(RecordFile file, const std::byte* words, std::uint64_t lines)
      : file_(std::move(file)), words_{words, sizeof(std::uint64_t)}, lines_(lines) {}

  RecordFile file_;
  Numbers words_;
  std::uint64_t lines_;
};

}  // namespace onecopy::records
