#include "onecopy/records/hash_index.hpp"

#include <algorithm>
#include <random>
#include <span>
#include <utility>

#include "onecopy/base/error.hpp"
#include "onecopy/base/interrupt.hpp"
#include "onecopy/records/take.hpp"

namespace onecopy::records {
namespace {

constexpr unsigned row_bits = 48;
constexpr std::uint64_t row_mask = (std::uint64_t{1} << row_bits) - 1;
constexpr std::uint64_t most_lines = std::uint64_t{1} << 32U;
constexpr std::uint64_t rows_in_line = 6;    // of eight: a full line is rare, and a miss ends soon
constexpr std::uint64_t looks_for_row = 64;  // limit of the average; 5 for random hashes
constexpr std::uint64_t looks_for_few = 1U << 16U;

std::uint64_t first_line(std::uint64_t hash, std::uint64_t lines) noexcept { return ((hash >> 32U) * lines) >> 32U; }

std::uint64_t next_line(std::uint64_t line, std::uint64_t lines) noexcept { return line + 1 == lines ? 0 : line + 1; }

bool may_be(std::uint64_t word, std::uint64_t hash) noexcept { return word >> row_bits == (hash & 0xFFFFU); }

bool is_key(const Node& keys, std::uint64_t row, const Key& key) {
  if (keys.kind == TypeKind::text && key.kind == Key::Kind::text) return keys.text(row) == key.text && !keys.null(row);
  return Key::of(keys, row) == key;
}

// Calls `visit(k, word)` for the words of a line, then of the next, until it returns that it is done: each once at
// most.
template <class Visit>
void probe(std::uint64_t hash, std::uint64_t lines, const Visit& visit) {
  std::uint64_t line = first_line(hash, lines);
  for (std::uint64_t seen = 0; seen < lines; ++seen, line = next_line(line, lines))
    for (std::size_t i = 0; i < HashIndex::words_in_line; ++i)
      if (visit(line * HashIndex::words_in_line + i)) return;
}

// Returns the number of words that were compared.
std::uint64_t add(std::span<std::uint64_t> words, const Node& keys, std::uint64_t row,
                  const std::optional<HashSeed>& seed) {
  const Key key = Key::of(keys, row);
  if (key != key) return 0;  // NaN, also inside a tuple: it equals no key
  const std::uint64_t hash = key.hash(seed);
  std::uint64_t looks = 0;
  probe(hash, words.size() / HashIndex::words_in_line, [&](std::uint64_t k) {
    ++looks;
    if (words[k] == 0) {
      words[k] = (hash & 0xFFFFU) << row_bits | (row + 1);
      return true;
    }
    const std::uint64_t other = (words[k] & row_mask) - 1;
    if (may_be(words[k], hash) && is_key(keys, other, key))
      reject(FormatError::inconsistent, "pairs ", other, " and ", row, " have the same key, ", key.shown());
    return false;
  });
  return looks;
}

// False: the keys collide more often than random hashes do.
bool fill(std::span<std::uint64_t> words, const Node& keys, const std::optional<HashSeed>& seed) {
  std::uint64_t looks = 0;
  constexpr std::uint64_t between_polls = std::uint64_t{1} << 14U;
  for (std::uint64_t row = 0; row < keys.length; ++row) {
    if (row % between_polls == 0) poll_interrupt();
    looks += add(words, keys, row, seed);
    if (!seed && looks > keys.length * looks_for_row + looks_for_few) return false;
  }
  return true;
}

}  // namespace

HashSeed new_seed() {
  std::random_device random;
  const auto word = [&random] { return std::uint64_t{random()} << 32U | random(); };
  const std::uint64_t first = word();
  return {first, word()};
}

HashIndex HashIndex::of(RecordFile file) {
  constexpr std::uint64_t line = words_in_line * sizeof(std::uint64_t);
  const std::string& path = file.arrays().mapping()->path();
  if (file.schema().container != "dict")
    throw FormatError(FormatError::not_this_format, "expected a dict, found a list").with_path(path);
  const Entry* entry = file.arrays().index().find(tensor);
  const bool seeded = entry == nullptr;
  if (seeded) entry = file.arrays().index().find(seeded_tensor);
  if (entry == nullptr || entry->dtype != DType::u64 || entry->length == 0 || entry->length % line != 0 ||
      entry->length / line > most_lines + (seeded ? 1 : 0) || (seeded && entry->length == line))
    throw FormatError(FormatError::malformed, concat("the index '", tensor, "' of the dict is missing or incomplete"))
        .with_path(path);
  const std::byte* words = file.arrays().bytes(*entry).data();
  const std::uint64_t lines = entry->length / line;
  if (!seeded) return {std::move(file), words, lines, std::nullopt};
  const Numbers first{words, sizeof(std::uint64_t)};
  const HashSeed seed{first.unsigned_at(0), first.unsigned_at(1)};
  return {std::move(file), words + line, lines - 1, seed};
}

std::optional<std::uint64_t> HashIndex::find(const Key& key) const {
  const Node& keys = file_.rows().children[0];
  const Node& values = file_.rows().children[1];
  const std::uint64_t hash = key.hash(seed_);
  std::optional<std::uint64_t> found;
  probe(hash, lines_, [&](std::uint64_t k) {
    const std::uint64_t word = words_.unsigned_at(k);
    if (word == 0) return true;
    if (!may_be(word, hash)) return false;
    const std::uint64_t row = (word & row_mask) - 1;
    if (row >= keys.length)
      reject(FormatError::out_of_bounds, "'", tensor, "' refers to rows that do not exist: the file is damaged");
    prefetch(values, row);  // loads while the key is compared
    if (is_key(keys, row, key)) found = row;
    return found.has_value();
  });
  return found;
}

HashIndex::Built HashIndex::build(const Node& keys) {
  const std::uint64_t lines = keys.length / rows_in_line + 1;
  if (lines > most_lines) reject(FormatError::too_costly, "a dict with ", keys.length, " keys is too large");
  std::vector<std::uint64_t> words(lines * words_in_line);
  if (fill(words, keys, std::nullopt)) return {tensor, std::move(words)};
  const HashSeed seed = new_seed();
  words.assign((lines + 1) * words_in_line, 0);
  std::ranges::copy(seed, words.begin());
  (void)fill(std::span(words).subspan(words_in_line), keys, seed);
  return {seeded_tensor, std::move(words)};
}

}  // namespace onecopy::records
