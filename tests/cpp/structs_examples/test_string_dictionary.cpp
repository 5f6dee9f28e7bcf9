// The twin: a std::map<std::string, number>.
#include <set>

#include "in_every_mode.hpp"
#include "precompiled.hpp"
#include "string_dictionary.hpp"

using example::StringDictionary;

namespace {

std::map<std::string, std::uint64_t> numbered(const std::vector<std::string>& strings) {
  std::map<std::string, std::uint64_t> twin;
  for (const std::string& string : std::set<std::string>(strings.begin(), strings.end()))
    twin.emplace(string, twin.size());
  return twin;
}

StringDictionary::Range prefix_in(const std::map<std::string, std::uint64_t>& twin, const std::string& prefix) {
  std::uint64_t less = 0;
  std::uint64_t starting = 0;
  for (const auto& [string, _] : twin) {
    if (string.starts_with(prefix))
      ++starting;
    else if (string < prefix)
      ++less;
  }
  return {less, less + starting};
}

void check_every_answer(const std::vector<std::string>& strings, const std::vector<std::string>& questions) {
  const auto twin = numbered(strings);
  onecopy::testing::in_every_mode(StringDictionary::build(strings), [&](const StringDictionary& dictionary) {
    REQUIRE(dictionary.size == twin.size());
    for (const auto& [string, id] : twin) {
      CHECK(dictionary[id] == string);
      CHECK(dictionary.find(string) == id);
    }
    for (const std::string& question : questions) {
      CAPTURE(question);
      CHECK(dictionary.find(question).has_value() == twin.contains(question));
      CHECK(dictionary.prefix(question) == prefix_in(twin, question));
    }
  });
}

// Few letters and few lengths, so that prefixes are shared and strings come twice.
std::vector<std::string> random_strings(std::size_t count, std::string_view letters, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::string> strings(count);
  for (std::string& string : strings)
    for (auto left = random() % 7; left > 0; --left) string += letters[random() % letters.size()];
  return strings;
}

}  // namespace

TEST_CASE("a dictionary agrees with a map of random strings, bytes above 127 and zero bytes among them") {
  for (const std::string_view letters : {std::string_view("ab"), std::string_view("\0\x7f\x80\xff", 4)})
    for (const std::size_t count : {1U, 15U, 16U, 17U, 32U, 33U, 500U})
      check_every_answer(random_strings(count, letters, count), random_strings(200, letters, count + 1));
}

TEST_CASE("a dictionary agrees with a map of strings of every kind") {
  const std::string base(300, 'x');
  const std::string far = base + std::string(20'000, 'z');
  using Strings = std::vector<std::string>;
  for (const auto& [strings, questions] : std::vector<std::pair<Strings, Strings>>{
           {{}, {"", "a", "\xff"}},
           {{""}, {"", "a"}},
           {{"", "a", "aa"}, {"", "a", "aa", "aaa", "b"}},
           {{"a", "\xfe\xff", "\xff", "\xff\xff", "\xff\xff\xff"}, {"\xfe", "\xff", "\xff\xff", "\xfe\xff\xff"}},
           {{base, base + "y", far, base.substr(0, 128)}, {base, "x", base + "z"}},  // longer than 127 bytes
           {{"Äpfel", "naïve", "Zürich", "東京", "東京都", "мир", "mir"}, {"東", "東京", "Z", "м", "zürich", ""}}})
    check_every_answer(strings, questions);
}
