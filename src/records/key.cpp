#include <bit>
#include <cmath>
#include <cstring>

#include "onecopy/base/error.hpp"
#include "onecopy/records/hash_index.hpp"

namespace onecopy::records {
namespace {

constexpr double two_63 = 9223372036854775808.0;

// The default hash, fast and without a seed.
class Plain {
 public:
  // A product carries every bit upwards, the shift brings them back down.
  void add(std::uint64_t word) noexcept {
    hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15U;
    hash_ ^= hash_ >> 32U;
  }

  std::uint64_t end() noexcept {
    // Twice more: the last words, too, are to reach every bit.
    add(0xBF58476D1CE4E5B9U);
    add(0x94D049BB133111EBU);
    return hash_;
  }

 private:
  std::uint64_t hash_ = 0;
};

// SipHash-1-3 of the words (J.-P. Aumasson, D. J. Bernstein: SipHash, a fast short-input PRF, 2012): without the seed,
// colliding keys cannot be chosen.
class Seeded {
 public:
  explicit Seeded(const HashSeed& seed) noexcept
      : v0_(seed[0] ^ 0x736F6D6570736575U),
        v1_(seed[1] ^ 0x646F72616E646F6DU),
        v2_(seed[0] ^ 0x6C7967656E657261U),
        v3_(seed[1] ^ 0x7465646279746573U) {}

  void add(std::uint64_t word) noexcept {
    v3_ ^= word;
    round();
    v0_ ^= word;
  }

  std::uint64_t end() noexcept {
    v2_ ^= 0xFFU;
    for (int i = 0; i < 3; ++i) round();
    return v0_ ^ v1_ ^ v2_ ^ v3_;
  }

 private:
  void round() noexcept {
    v0_ += v1_;
    v2_ += v3_;
    v1_ = std::rotl(v1_, 13) ^ v0_;
    v3_ = std::rotl(v3_, 16) ^ v2_;
    v0_ = std::rotl(v0_, 32) + v3_;
    v2_ += v1_;
    v3_ = std::rotl(v3_, 21) ^ v0_;
    v1_ = std::rotl(v1_, 17) ^ v2_;
    v2_ = std::rotl(v2_, 32);
  }

  std::uint64_t v0_;
  std::uint64_t v1_;
  std::uint64_t v2_;
  std::uint64_t v3_;
};

template <class Hash>
void add(Hash& hash, std::string_view bytes) noexcept {
  hash.add(bytes.size());
  for (; bytes.size() > sizeof(std::uint64_t); bytes.remove_prefix(sizeof(std::uint64_t))) {
    std::uint64_t word;  // NOLINT(cppcoreguidelines-init-variables): filled at once
    std::memcpy(&word, bytes.data(), sizeof word);
    hash.add(word);
  }
  std::uint64_t last = 0;
  if (!bytes.empty()) std::memcpy(&last, bytes.data(), bytes.size());
  hash.add(last);
}

template <class Hash>
void add(Hash& hash, const Key& key) noexcept {
  hash.add(static_cast<std::uint64_t>(key.kind));
  switch (key.kind) {
    case Key::Kind::none: return;
    case Key::Kind::integer: return hash.add(static_cast<std::uint64_t>(key.integer));
    case Key::Kind::real: return hash.add(std::bit_cast<std::uint64_t>(key.real));
    case Key::Kind::wide: return add(hash, key.wide);
    case Key::Kind::text:
    case Key::Kind::bytes: return add(hash, key.text);
    case Key::Kind::tuple: break;
  }
  hash.add(key.items.size());
  for (const Key& item : key.items) add(hash, item);
}

// Whether the last byte only repeats the sign of the one before.
bool is_longer_than_needed(std::string_view number) noexcept {
  if (number.size() < 2) return false;
  const auto last = static_cast<unsigned char>(number.back());
  const bool negative = (static_cast<unsigned char>(number[number.size() - 2]) & 0x80U) != 0;
  return last == (negative ? 0xFF : 0x00);
}

// A real of 2^63 or more in magnitude is an integer: its 53 bits, shifted.
Key of_huge(double value) {
  int exponent = 0;
  auto mantissa = static_cast<std::int64_t>(std::ldexp(std::frexp(value, &exponent), 53));
  const int shift = exponent - 53;
  std::string bytes(static_cast<std::size_t>(shift / 8), '\0');
  mantissa *= std::int64_t{1} << (shift % 8);
  for (unsigned i = 0; i < 8; ++i)
    bytes.push_back(static_cast<char>((static_cast<std::uint64_t>(mantissa) >> (8 * i)) & 0xFFU));
  return Key::of_bigint(bytes);
}

// The key in value i. `pair` is the row that the key belongs to, for errors.
Key key_of(const Node& node, std::uint64_t i, std::uint64_t pair) {
  if (node.null(i)) return {};
  std::vector<Key> items;
  switch (node.kind) {
    case TypeKind::null: return {};
    case TypeKind::boolean: return Key::of(std::int64_t{node.bits.at(i)});
    case TypeKind::integer: return Key::of(node.data.signed_at(i));
    case TypeKind::bigint: return Key::of_bigint(node.text(i));
    case TypeKind::real:
    case TypeKind::number: return Key::of(node.real(i));
    case TypeKind::text: return Key::of(node.text(i));
    case TypeKind::bytes: return Key::of_bytes(node.text(i));
    case TypeKind::fixed:
      for (const Node& child : node.children) items.push_back(key_of(child, i, pair));
      return Key::of(std::move(items));
    case TypeKind::tuple: {
      const auto range = node.range(i);
      for (std::uint64_t at = range.begin; at < range.end; ++at) items.push_back(key_of(node.children[0], at, pair));
      return Key::of(std::move(items));
    }
    case TypeKind::choice: {
      const auto [child, at] = node.chosen(i);
      return key_of(*child, at, pair);
    }
    default: break;
  }
  const std::string name = node.type->name.empty() ? "" : " (" + node.type->name + ")";
  reject(FormatError::unsupported, "the key of pair ", pair, " is of kind ", to_string(node.kind), name,
         ": keys must be text, bytes, numbers, booleans, None, or tuples of these");
}

}  // namespace

Key Key::of(std::int64_t value) {
  Key key;
  key.kind = Kind::integer;
  key.integer = value;
  return key;
}

Key Key::of(double value) {
  if (std::isfinite(value) && value == std::trunc(value)) {
    if (value >= -two_63 && value < two_63) return of(static_cast<std::int64_t>(value));
    return of_huge(value);
  }
  Key key;
  key.kind = Kind::real;
  key.real = value;
  return key;
}

Key Key::of(std::string_view utf8) {
  Key key;
  key.kind = Kind::text;
  key.text = utf8;
  return key;
}

Key Key::of_bytes(std::string_view bytes) {
  Key key = of(bytes);
  key.kind = Kind::bytes;
  return key;
}

Key Key::of_bigint(std::string_view number) {
  while (is_longer_than_needed(number)) number.remove_suffix(1);
  if (number.size() <= sizeof(std::int64_t)) {
    const bool negative = !number.empty() && (static_cast<unsigned char>(number.back()) & 0x80U) != 0;
    std::int64_t value = negative ? -1 : 0;
    if (!number.empty()) std::memcpy(&value, number.data(), number.size());
    return of(value);
  }
  Key key;
  key.kind = Kind::wide;
  key.wide = number;
  return key;
}

Key Key::of(std::vector<Key> items) {
  Key key;
  key.kind = Kind::tuple;
  key.items = std::move(items);
  return key;
}

Key Key::of(const Node& node, std::uint64_t i) { return key_of(node, i, i); }

std::uint64_t Key::hash(const std::optional<HashSeed>& seed) const noexcept {
  if (seed) {
    Seeded hash(*seed);
    add(hash, *this);
    return hash.end();
  }
  Plain hash;
  add(hash, *this);
  return hash.end();
}

std::string Key::shown() const {
  constexpr std::size_t longest = 100;
  if (kind == Kind::integer) return std::to_string(integer);
  if (kind != Kind::text && kind != Kind::bytes) return "of another type";
  return (kind == Kind::bytes ? "b'" : "'") + std::string(text.substr(0, longest)) +
         (text.size() > longest ? "...'" : "'");
}

bool operator==(const Key& a, const Key& b) noexcept {
  return a.kind == b.kind && a.integer == b.integer && a.real == b.real && a.text == b.text && a.wide == b.wide &&
         a.items == b.items;
}

}  // namespace onecopy::records
