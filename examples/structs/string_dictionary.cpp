// A sorted dictionary in a file:
//
//     string_dictionary build words.oc < /usr/share/dict/words     # one string a line
//     string_dictionary query words.oc id zebra prefix zeb string 17
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/structs/structs.hpp"
#include "string_dictionary.hpp"

namespace {

int build(const char* path) {
  std::vector<std::string> strings;
  for (std::string line; std::getline(std::cin, line);) strings.push_back(line);
  const auto dictionary = example::StringDictionary::build(std::move(strings));
  const auto bytes = onecopy::save(path, dictionary);
  std::cout << dictionary.size << " strings, " << bytes << " bytes\n";
  return 0;
}

void answer(const example::StringDictionary& dictionary, std::string_view what, const std::string& word) {
  if (what == "prefix") {
    const auto [first, last] = dictionary.prefix(word);
    for (std::uint64_t id = first; id < last; ++id) std::cout << id << " " << dictionary[id] << "\n";
  } else if (const auto id = dictionary.find(word); what == "id" && id) {
    std::cout << *id << " " << word << "\n";
  } else if (what == "string" && std::stoull(word) < dictionary.size) {
    std::cout << word << " " << dictionary[std::stoull(word)] << "\n";
  } else {
    std::cout << "no answer\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  try {
    if (words.size() == 3 && std::string_view(words[1]) == "build") return build(words[2]);
    if (words.size() >= 5 && std::string_view(words[1]) == "query") {
      const auto dictionary = onecopy::open<example::StringDictionary>(words[2]);
      for (std::size_t i = 3; i + 1 < words.size(); i += 2) answer(*dictionary, words[i], words[i + 1]);
      return 0;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: string_dictionary build FILE < STRINGS\n"
               "       string_dictionary query FILE id|prefix|string WORD ...\n";
  return 2;
}
