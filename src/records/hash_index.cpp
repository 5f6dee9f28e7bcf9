#include "onecopy/records/hash_index.hpp"

#include <algorithm>
#include <utility>

#include "onecopy/base/error.hpp"
#include "onecopy/records/take.hpp"

namespace onecopy::records {
namespace {

constexpr unsigned row_bits = 48;
constexpr std::uint64_t row_mask = (std::uint64_t{1} << row_bits) - 1;
constexpr std::uint64_t most_lines = std::uint64_t{1} << 32U;
constexpr std::uint64_t rows_in_line = 6;  // of eight: a line that is full is rare, and a miss ends soon

std::uint64_t first_line(std::uint64_t hash, std::uint64_t lines) noexcept { return ((hash >> 32U) * lines) >> 32U; }

std::uint64_t next_line(std::uint64_t line, std::uint64_t lines) noexcept { return line + 1 == lines ? 0 : line + 1; }

bool may_be(std::uint64_t word, std::uint64_t hash) noexcept { return word >> row_bits == (hash & 0xFFFFU); }

bool is_key(const Node& keys, std::uint64_t row, const Key& key) {
  if (keys.kind == TypeKind::text && key.kind == Key::Kind::text) return keys.text(row) == key.text && !keys.null(row);
  return Key::of(keys, row) == key;
}

// Calls `visit(k, word)` for the words of a line, then of the next, until it says that it is done: each once at most.
template <class Visit>
void probe(std::uint64_t hash, std::uint64_t lines, const Visit& visit) {
  std::uint64_t line = first_line(hash, lines);
  for (std::uint64_t seen = 0; seen < lines; ++seen, line = next_line(line, lines))
    for (std::size_t i = 0; i < HashIndex::words_in_line; ++i)
      if (visit(line * HashIndex::words_in_line + i)) return;
}

void add(std::vector<std::uint64_t>& words, const Node& keys, std::uint64_t row) {
  const Key key = Key::of(keys, row);
  if (key != key) return;  // NaN, also inside a tuple: nobody can ask for it
  const std::uint64_t hash = key.hash();
  probe(hash, words.size() / HashIndex::words_in_line, [&](std::uint64_t k) {
    if (words[k] == 0) {
      words[k] = (hash & 0xFFFFU) << row_bits | (row + 1);
      return true;
    }
    const std::uint64_t other = (words[k] & row_mask) - 1;
    if (may_be(words[k], hash) && is_key(keys, other, key))
      throw FormatError("pairs " + std::to_string(other) + " and " + std::to_string(row) + " have the same key");
    return false;
  });
}

}  // namespace

HashIndex HashIndex::of(RecordFile file) {
  constexpr std::uint64_t line = words_in_line * sizeof(std::uint64_t);
  const std::string& path = file.arrays().mapping()->path();
  if (file.schema().container != "dict") throw FormatError("it holds no dict, but a list").with_path(path);
  const Entry* entry = file.arrays().index().find(tensor);
  if (entry == nullptr || entry->dtype != DType::u64 || entry->length == 0 || entry->length % line != 0 ||
      entry->length / line > most_lines)
    throw FormatError("the dict has no index '" + std::string(tensor) + "' of whole lines").with_path(path);
  const std::byte* words = file.arrays().bytes(*entry).data();
  const std::uint64_t lines = entry->length / line;
  return {std::move(file), words, lines};
}

std::optional<std::uint64_t> HashIndex::find(const Key& key) const {
  const Node& keys = file_.rows().children[0];
  const Node& values = file_.rows().children[1];
  const std::uint64_t hash = key.hash();
  std::optional<std::uint64_t> found;
  probe(hash, lines_, [&](std::uint64_t k) {
    const std::uint64_t word = words_.unsigned_at(k);
    if (word == 0) return true;
    if (!may_be(word, hash)) return false;
    const std::uint64_t row = (word & row_mask) - 1;
    if (row >= keys.length) throw FormatError("'" + std::string(tensor) + "' leads out of the rows: it is damaged");
    prefetch(values, row);  // on its way while the key is compared
    if (is_key(keys, row, key)) found = row;
    return found.has_value();
  });
  return found;
}

std::vector<std::uint64_t> HashIndex::build(const Node& keys) {
  const std::uint64_t lines = keys.length / rows_in_line + 1;
  if (lines > most_lines) throw FormatError("a dict of " + std::to_string(keys.length) + " keys is too big");
  std::vector<std::uint64_t> words(lines * words_in_line);
  for (std::uint64_t row = 0; row < keys.length; ++row) add(words, keys, row);
  return words;
}

}  // namespace onecopy::records
