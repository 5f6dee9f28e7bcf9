// The keys of a dict, found without decoding: one access to the index and, nearly always, one to the matching key.
//
//     const auto index = HashIndex::of(file);
//     if (const auto row = index.find(Key::of(std::string_view("a.jpg")))) use(file.rows().children[1], *row);
//
// Two keys are equal if Python compares them equal: 1, 1.0 and True are, "a" and b"a" are not, and NaN equals no key.
// The index is one tensor of lines of 64 bytes, eight words each: 16 bits of the key's hash beside 48 of 1 + its row; 0
// is a free word. A key is in the line that its hash selects, or in the next line that is not full; three quarters are
// full. Keys that collide too often (chosen by an attacker) are hashed with a seed, which precedes the words.
// docs/formats/records.md specifies the hashes. Threads: any.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/records/record_file.hpp"

namespace onecopy::records {

using HashSeed = std::array<std::uint64_t, 2>;

HashSeed new_seed();  // from the random device of the system

// A key in the form in which keys are compared: equal Python keys have one form.
struct Key {
  enum class Kind : std::uint8_t { none, integer, wide, real, text, bytes, tuple };

  Kind kind = Kind::none;
  std::int64_t integer = 0;  // also of booleans, and of reals with an integral value
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

  // The key in value i of a node. Throws FormatError for a kind that cannot be a key.
  static Key of(const Node& node, std::uint64_t i);

  std::uint64_t hash(const std::optional<HashSeed>& seed = std::nullopt) const noexcept;
  std::string shown() const;  // for messages: the beginning of a long one
  friend bool operator==(const Key& a, const Key& b) noexcept;
};

class HashIndex {
 public:
  static constexpr std::string_view tensor = "records.0.index.slots";
  static constexpr std::string_view seeded_tensor = "records.0.index.seeded";  // one line more: the seed's
  static constexpr std::size_t words_in_line = 8;

  // Keeps the file open. Throws FormatError: a list instead of a dict, or no index of whole lines.
  static HashIndex of(RecordFile file);

  // The row of a key. Throws FormatError where a damaged index points outside the rows.
  std::optional<std::uint64_t> find(const Key& key) const;

  struct Built {
    std::string_view tensor;
    std::vector<std::uint64_t> words;
  };

  // The index of these keys. Throws FormatError: a repeated key, or a value that cannot be a key.
  static Built build(const Node& keys);

 private:
  HashIndex(RecordFile file, const std::byte* words, std::uint64_t lines, const std::optional<HashSeed>& seed)
      : file_(std::move(file)), words_{words, sizeof(std::uint64_t)}, lines_(lines), seed_(seed) {}

  RecordFile file_;
  Numbers words_;
  std::uint64_t lines_;
  std::optional<HashSeed> seed_;
};

}  // namespace onecopy::records
