// A bit vector that counts: how many ones come before bit i (rank), and where is the k-th of them (select).
//
//     const auto bits = RankSelect::build(std::move(words), 1'000'000);
//     bits.rank(500'000);  bits.select(42);
//     onecopy::save("bits.oc", bits);
//
// rank9 of Vigna, "Broadword implementation of rank/select queries" (WEA 2008): beside every 512 bits stand two words
// with the counts before and inside them, so that rank touches two cache lines and nothing else, at 25 % of the size of
// the bits. Select begins at a sample for every 4096th one and searches the counts between two samples.
//
// The fields are all there is to saving it: it is an aggregate. The two directories are types of their own, so that a
// program can warm what its queries need: `file.warm<&RankSelect::ranks>()`.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "onecopy/structs/owning_span.hpp"

namespace example {

struct RankDirectory {
  struct Block {            // of eight words
    std::uint64_t before;   // ones in all blocks before
    std::uint64_t between;  // ones in the block before its words 1 ... 7, in 9 bits each
  };
  onecopy::OwningSpan<Block> blocks;  // and one behind the last, which has the total

  static RankDirectory build(const std::vector<std::uint64_t>& words) {
    std::vector<Block> blocks;
    std::uint64_t total = 0;
    for (std::size_t first = 0; first < words.size(); first += 8) {
      Block block{.before = total, .between = 0};
      for (std::size_t i = 0; i < 8; ++i) {
        if (i > 0) block.between |= (total - block.before) << shift_of(i);
        if (first + i < words.size()) total += static_cast<std::uint64_t>(std::popcount(words[first + i]));
      }
      blocks.push_back(block);
    }
    blocks.push_back({.before = total, .between = 0});
    return {.blocks = std::move(blocks)};
  }

  // Ones in all words before this one.
  std::uint64_t before(std::size_t word) const noexcept {
    const Block& block = blocks[word / 8];
    return block.before + (block.between >> shift_of(word % 8) & 511);
  }

  std::uint64_t ones() const noexcept { return blocks.back().before; }

 private:
  // Word 0 needs no count: it is sent to the highest bit of `between`, which no other word uses and which stays 0.
  static constexpr unsigned shift_of(std::size_t word) noexcept { return static_cast<unsigned>((word + 7) % 8 * 9); }
};

struct SelectSamples {
  static constexpr std::uint64_t every = 4096;
  onecopy::OwningSpan<std::uint32_t> blocks;  // in which block the ones 0, 4096, 8192, ... are

  static SelectSamples build(const RankDirectory& ranks) {
    std::vector<std::uint32_t> blocks;
    for (std::size_t i = 0; i + 1 < ranks.blocks.size(); ++i)
      while (blocks.size() * every < ranks.blocks[i + 1].before) blocks.push_back(static_cast<std::uint32_t>(i));
    return {.blocks = std::move(blocks)};
  }
};

struct RankSelect {
  std::uint64_t size = 0;                    // in bits
  onecopy::OwningSpan<std::uint64_t> words;  // one more than needed, so that rank(size) reads inside
  RankDirectory ranks;
  SelectSamples samples;

  // The first `size` bits of `words`, beginning with the lowest of the first word. Throws std::invalid_argument where
  // there are fewer, std::length_error beyond 2^41.
  static RankSelect build(std::vector<std::uint64_t> words, std::uint64_t size) {
    if (size > std::uint64_t{1} << 41) throw std::length_error("RankSelect: more than 2^41 bits");
    if (words.size() < (size + 63) / 64)
      throw std::invalid_argument("RankSelect: " + std::to_string(size) + " bits in " + std::to_string(words.size()) +
                                  " words");
    words.resize(size / 64 + 1);
    words.back() &= low_bits(size % 64);
    auto ranks = RankDirectory::build(words);
    auto samples = SelectSamples::build(ranks);
    return {.size = size, .words = std::move(words), .ranks = std::move(ranks), .samples = std::move(samples)};
  }

  // The positions of the ones, ascending and below `size`.
  static RankSelect of_positions(const std::vector<std::uint64_t>& positions, std::uint64_t size) {
    std::vector<std::uint64_t> words(size / 64 + 1);
    for (const std::uint64_t at : positions) words.at(at / 64) |= std::uint64_t{1} << (at % 64);
    return build(std::move(words), size);
  }

  bool operator[](std::uint64_t i) const noexcept { return (words[i / 64] >> (i % 64) & 1) != 0; }

  std::uint64_t ones() const noexcept { return ranks.ones(); }

  // Ones among the first i bits; i <= size.
  std::uint64_t rank(std::uint64_t i) const noexcept {
    const std::uint64_t word = words[i / 64] & low_bits(i % 64);
    return ranks.before(i / 64) + static_cast<std::uint64_t>(std::popcount(word));
  }

  // Where the k-th one is, from 0; k < ones().
  std::uint64_t select(std::uint64_t k) const noexcept {
    const std::size_t first = block_of(k) * 8;
    std::size_t word = first;
    while (word < first + 7 && ranks.before(word + 1) <= k) ++word;
    return word * 64 + select_in_word(words[word], k - ranks.before(word));
  }

 private:
  static constexpr std::uint64_t low_bits(std::uint64_t count) noexcept { return (std::uint64_t{1} << count) - 1; }

  // The last block with at most k ones before it.
  std::size_t block_of(std::uint64_t k) const noexcept {
    const std::size_t sample = k / SelectSamples::every;
    const auto* low = ranks.blocks.begin() + samples.blocks[sample];
    const auto* high = sample + 1 < samples.blocks.size() ? ranks.blocks.begin() + samples.blocks[sample + 1] + 1
                                                          : ranks.blocks.end() - 1;
    const auto* after = std::partition_point(low + 1, high, [k](const auto& block) { return block.before <= k; });
    return static_cast<std::size_t>(after - ranks.blocks.begin()) - 1;
  }

  // Halves the word until one bit is left.
  static std::uint64_t select_in_word(std::uint64_t word, std::uint64_t k) noexcept {
    std::uint64_t at = 0;
    for (unsigned width = 32; width > 0; width /= 2) {
      const auto ones = static_cast<std::uint64_t>(std::popcount(word & low_bits(width)));
      if (k >= ones) {
        k -= ones;
        at += width;
        word >>= width;
      }
    }
    return at;
  }
};

}  // namespace example
