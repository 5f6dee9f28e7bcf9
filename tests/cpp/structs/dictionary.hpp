// Classes as they are written for the library `essentials`, with nothing included but its stand-in; and what is in
// them as plain data, with a naive writer and reader of the same bytes.
#pragma once

#include "onecopy/structs/essentials.hpp"

namespace dictionaries {

struct bit_vector {
  bit_vector() = default;
  bit_vector(std::vector<uint64_t>&& words, uint64_t num_bits) : m_num_bits(num_bits), m_words(std::move(words)) {}

  uint64_t num_bits() const { return m_num_bits; }
  essentials::owning_span<uint64_t> const& words() const { return m_words; }

  template <typename Visitor>
  void visit(Visitor& visitor) {
    visit_impl(visitor, *this);
  }
  template <typename Visitor>
  void visit(Visitor& visitor) const {
    visit_impl(visitor, *this);
  }

 private:
  uint64_t m_num_bits = 0;
  essentials::owning_span<uint64_t> m_words;

  template <typename Visitor, typename T>
  static void visit_impl(Visitor& visitor, T&& t) {
    visitor.visit(t.m_num_bits);
    visitor.visit(t.m_words);
  }
};

enum class kind : uint8_t { small, large };
struct point {
  uint8_t x;
  uint32_t y;
  bool operator==(point const&) const = default;
};

struct content {
  uint64_t seed = 0;
  std::vector<uint8_t> letters;
  std::vector<uint64_t> words;
  std::vector<std::vector<uint64_t>> subs;
  std::vector<std::vector<uint32_t>> lists;
  std::string name;
  std::optional<uint32_t> extra;
  std::array<std::string, 2> labels;
  std::pair<uint8_t, uint32_t> range;
  kind size = kind::small;
  std::vector<point> points;
  bool operator==(content const&) const = default;
};

inline content random_content(unsigned seed, std::size_t scale) {
  std::mt19937_64 random(seed);
  content c;
  const auto fill = [&](auto& items, std::size_t most) {
    items.resize(random() % (most + 1));
    for (auto& item : items) item = static_cast<std::decay_t<decltype(item)>>(random());
  };
  c.seed = random();
  fill(c.letters, scale);
  fill(c.words, scale);
  c.subs.resize(random() % 9);
  for (auto& sub : c.subs) fill(sub, scale / 8);
  c.lists.resize(random() % 9);
  for (auto& list : c.lists) fill(list, scale / 8);
  fill(c.name, 40);
  if (random() % 2 == 0) c.extra = 7;
  fill(c.labels[0], 40);
  c.range = {3, 70000};
  c.size = kind::large;
  c.points.resize(random() % 9);
  for (auto& p : c.points) p = {static_cast<uint8_t>(random()), static_cast<uint32_t>(random())};
  return c;
}

struct dictionary {
  dictionary() = default;
  explicit dictionary(content c) : m_seed(c.seed), m_letters(std::move(c.letters)), m_words(std::move(c.words), 64) {
    std::vector<bit_vector> subs;
    for (auto& sub : c.subs) subs.emplace_back(std::move(sub), 1);
    m_subs = subs;
    m_spans = std::move(subs);
    m_lists = std::move(c.lists);
    m_name = c.name, m_extra = c.extra, m_labels = c.labels, m_range = c.range, m_kind = c.size;
    m_points = std::move(c.points);
  }

  content what() const {  // reads everything, both copies of the subs
    content c{m_seed, {m_letters.begin(), m_letters.end()}, {}, {}, m_lists, m_name, m_extra, m_labels, m_range,
              m_kind, {m_points.begin(), m_points.end()}};
    c.words.assign(m_words.words().begin(), m_words.words().end());
    for (auto const& sub : m_spans) c.subs.emplace_back(sub.words().begin(), sub.words().end());
    for (auto const& sub : m_subs) c.seed += std::accumulate(sub.words().begin(), sub.words().end(), sub.num_bits());
    for (auto const& sub : m_spans) c.seed -= std::accumulate(sub.words().begin(), sub.words().end(), sub.num_bits());
    return c;
  }

  essentials::owning_span<bit_vector> const& spans() const { return m_spans; }
  std::vector<bit_vector> const& subs() const { return m_subs; }
  bit_vector const& words() const { return m_words; }

  template <typename Visitor>
  void visit(Visitor& visitor) {
    visit_impl(visitor, *this);
  }
  template <typename Visitor>
  void visit(Visitor& visitor) const {
    visit_impl(visitor, *this);
  }

 private:
  essentials::version_number m_version{1, 2, 3};
  uint64_t m_seed = 0;
  essentials::owning_span<uint8_t> m_letters;
  bit_vector m_words;
  std::vector<bit_vector> m_subs;
  essentials::owning_span<bit_vector> m_spans;
  std::vector<std::vector<uint32_t>> m_lists;
  std::string m_name;
  std::optional<uint32_t> m_extra;
  std::array<std::string, 2> m_labels;
  std::pair<uint8_t, uint32_t> m_range;
  kind m_kind = kind::small;
  essentials::owning_span<point> m_points;

  template <typename Visitor, typename T>
  static void visit_impl(Visitor& visitor, T&& t) {
    visitor.visit(t.m_version);
    visitor.visit(t.m_seed);
    visitor.visit(t.m_letters);
    visitor.visit(t.m_words, "words");
    visitor.visit(t.m_subs);
    visitor.visit(t.m_spans, "spans");
    visitor.visit(t.m_lists);
    visitor.visit(t.m_name);
    visitor.visit(t.m_extra);
    visitor.visit(t.m_labels);
    visitor.visit(t.m_range);
    visitor.visit(t.m_kind);
    visitor.visit(t.m_points);
  }
};

// The oracle: the bytes one by one.
inline std::string naive_bytes(content const& c) {
  std::string out("\1\2\3", 3);
  const auto number = [&](uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
  };
  const auto numbers = [&](auto const& values, int bytes) {
    number(values.size(), 8);
    for (auto value : values) number(static_cast<uint64_t>(value), bytes);
  };
  number(c.seed, 8);
  numbers(c.letters, 1);
  number(64, 8), numbers(c.words, 8);
  for (int twice = 0; twice < 2; ++twice) {
    number(c.subs.size(), 8);
    for (auto const& sub : c.subs) number(1, 8), numbers(sub, 8);
  }
  number(c.lists.size(), 8);
  for (auto const& list : c.lists) numbers(list, 4);
  numbers(c.name, 1);
  number(c.extra ? 1 : 0, 1);
  if (c.extra) number(*c.extra, 4);
  for (auto const& label : c.labels) numbers(label, 1);
  number(c.range.first, 1), number(c.range.second, 4);
  number(static_cast<uint64_t>(c.size), 1);
  number(c.points.size(), 8);
  for (auto const& p : c.points) number(p.x, 4), number(p.y, 4);  // three bytes of padding, zeros
  return out;
}

}  // namespace dictionaries
