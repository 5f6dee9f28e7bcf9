// A bit vector in a file:
//
//     seq 0 7 1000000 | rank_select build ones.oc        # the positions of the ones, ascending, one a line
//     rank_select query ones.oc rank 500000 select 42
#include <cstdint>
#include <iostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/structs/structs.hpp"
#include "rank_select.hpp"

namespace {

int build(const char* path) {
  std::vector<std::uint64_t> positions;
  for (std::uint64_t at = 0; std::cin >> at;) positions.push_back(at);
  const std::uint64_t size = positions.empty() ? 0 : positions.back() + 1;
  const auto bits = example::RankSelect::of_positions(positions, size);
  const auto bytes = onecopy::save(path, bits);
  std::cout << bits.size << " bits, " << bits.ones() << " ones, " << bytes << " bytes\n";
  return 0;
}

int query(const char* path, std::span<char*> questions) {
  const auto bits = onecopy::open<example::RankSelect>(path);
  for (std::size_t i = 0; i + 1 < questions.size(); i += 2) {
    const std::string_view what = questions[i];
    const std::uint64_t number = std::stoull(questions[i + 1]);
    if (what == "rank" && number <= bits->size)
      std::cout << bits->rank(number) << "\n";
    else if (what == "select" && number < bits->ones())
      std::cout << bits->select(number) << "\n";
    else
      std::cout << "no answer\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  try {
    if (words.size() == 3 && std::string_view(words[1]) == "build") return build(words[2]);
    if (words.size() >= 5 && std::string_view(words[1]) == "query") return query(words[2], words.subspan(3));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: rank_select build FILE < POSITIONS\n       rank_select query FILE rank|select NUMBER ...\n";
  return 2;
}
