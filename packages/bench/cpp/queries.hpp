// Questions, chosen when the index is built, so that who asks them has touched nothing of it: k-mers that are there and
// k-mers that are not, in turn, with the sums of the answers.
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
#include <thread>
#include <vector>

#include "kmer_dictionary.hpp"
#include "report.hpp"

namespace bench {

inline constexpr std::size_t few = 1000;  // so many answers are waited for separately

// A number that changes with each part of an answer; sums of it do not depend on the order.
inline std::uint64_t mixed(const std::optional<example::Hit>& hit) noexcept {
  if (!hit) return 1;
  return (hit->contig << 32 ^ hit->position ^ 0x5bd1e995) * 0x9e3779b97f4a7c15U;
}

struct Answered {
  std::uint64_t count = 0;
  std::uint64_t sum = 0;
};

// Reads the clock only now and then: where memory is short one query may take ten milliseconds.
inline Answered answer(const example::KmerDictionary& dictionary, std::span<const example::Kmer> questions,
                       Clock::time_point deadline) {
  Answered answered;
  while (answered.count < questions.size() && (answered.count % 64 != 0 || Clock::now() < deadline))
    answered.sum += mixed(dictionary.lookup(questions[answered.count++]));
  return answered;
}

// The same by several threads, each with a stretch of the questions.
inline Answered answer(const example::KmerDictionary& dictionary, std::span<const example::Kmer> questions,
                       Clock::time_point deadline, std::size_t threads) {
  if (threads == 1) return answer(dictionary, questions, deadline);
  std::vector<Answered> parts(threads);
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < threads; ++i) {
      const std::size_t begin = questions.size() * i / threads;
      const auto stretch = questions.subspan(begin, questions.size() * (i + 1) / threads - begin);
      workers.emplace_back([&, stretch, i] { parts[i] = answer(dictionary, stretch, deadline); });
    }
  }
  Answered all;
  for (const Answered& part : parts) {
    all.count += part.count;
    all.sum += part.sum;
  }
  return all;
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
    made.sum_of_few = answer(dictionary, all.first(std::min(few, count)), Clock::time_point::max()).sum;
    made.sum = answer(dictionary, all, Clock::time_point::max()).sum;
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

  static Questions load(const std::filesystem::path& path, std::size_t at_most) {
    Questions loaded;
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char*>(&loaded.sum_of_few), sizeof loaded.sum_of_few);
    file.read(reinterpret_cast<char*>(&loaded.sum), sizeof loaded.sum);
    if (!file) throw std::runtime_error("no questions in " + path.string());
    const std::size_t there = (std::filesystem::file_size(path) - 16) / sizeof(example::Kmer);
    loaded.kmers.resize(std::min(there, at_most));
    file.read(reinterpret_cast<char*>(loaded.kmers.data()),
              static_cast<std::streamsize>(loaded.kmers.size() * sizeof(example::Kmer)));
    return loaded;
  }
};

}  // namespace bench
