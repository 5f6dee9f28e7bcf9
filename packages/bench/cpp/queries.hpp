// Questions and the sums of their answers. They are chosen when the index is built, so that the process that asks them
// has not touched the index before. k-mers that are in the index and k-mers that are not alternate.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kmer_dictionary.hpp"

namespace bench {

inline constexpr std::size_t few = 1000;  // this many answers are timed separately

// Returns a number that depends on each part of an answer; its sum does not depend on the order of the questions.
inline std::uint64_t mixed(const std::optional<example::Hit>& hit) noexcept {
  if (!hit) return 1;
  return (hit->contig << 32 ^ hit->position ^ 0x5bd1e995) * 0x9e3779b97f4a7c15U;
}

// Returns the sum of the answers.
inline std::uint64_t answer(const example::KmerDictionary& dictionary, std::span<const example::Kmer> questions) {
  std::uint64_t sum = 0;
  for (const example::Kmer question : questions) sum += mixed(dictionary.lookup(question));
  return sum;
}

struct Questions {
  std::uint64_t sum_of_few = 0;
  std::uint64_t sum = 0;
  std::vector<example::Kmer> kmers;

  static Questions make(const example::KmerDictionary& dictionary, std::size_t count, std::uint64_t seed) {
    Questions made;
    const auto strange = example::random_contig("", count + example::k - 1, seed);
    std::mt19937_64 random(seed);
    example::for_each_kmer(strange.bases, [&](example::Kmer absent, std::size_t i) {
      const bool ask = i % 2 == 0 && !dictionary.kmers.empty();
      made.kmers.push_back(ask ? dictionary.kmers[random() % dictionary.kmers.size()] : absent);
    });
    const std::span<const example::Kmer> all(made.kmers);
    made.sum_of_few = answer(dictionary, all.first(std::min(few, count)));
    made.sum = answer(dictionary, all);
    return made;
  }

  void save(const std::filesystem::path& path) const {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&sum_of_few), sizeof sum_of_few);
    file.write(reinterpret_cast<const char*>(&sum), sizeof sum);
    file.write(reinterpret_cast<const char*>(kmers.data()),
               static_cast<std::streamsize>(kmers.size() * sizeof(kmers[0])));
    if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
  }

  static Questions load(const std::filesystem::path& path) {
    Questions loaded;
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(&loaded.sum_of_few), sizeof loaded.sum_of_few);
    file.read(reinterpret_cast<char*>(&loaded.sum), sizeof loaded.sum);
    if (!file) throw std::runtime_error("no questions in " + path.string());
    loaded.kmers.resize((std::filesystem::file_size(path) - 16) / sizeof(example::Kmer));
    file.read(reinterpret_cast<char*>(loaded.kmers.data()),
              static_cast<std::streamsize>(loaded.kmers.size() * sizeof(example::Kmer)));
    return loaded;
  }
};

}  // namespace bench
