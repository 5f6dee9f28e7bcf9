// The files that are compared, each with the same k-mer dictionary, and the ways to open them.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "kmer_dictionary.hpp"
#include "onecopy/structs/streams.hpp"
#include "onecopy/structs/structs.hpp"

namespace bench {

using example::KmerDictionary;
using Dictionary = std::shared_ptr<const KmerDictionary>;

// A program that lists its members by hand has to write this; onecopy does not need it.
template <class Value, class Visit>
void for_each_leaf(Value& value, Visit&& visit) {
  visit(value.kmers);
  visit(value.positions);
  visit(value.prefixes.shift);
  visit(value.prefixes.firsts);
  visit(value.contigs.starts.size);
  visit(value.contigs.starts.words);
  visit(value.contigs.starts.ranks.blocks);
  visit(value.contigs.starts.samples.blocks);
  visit(value.contigs.name_of);
  visit(value.contigs.names.size);
  visit(value.contigs.names.buckets);
  visit(value.contigs.names.text);
}

// Has the visit() that packed streams require and existing classes have.
struct Listed {
  KmerDictionary dictionary;

  template <class Visitor>
  void visit(Visitor& visitor) {
    for_each_leaf(dictionary, [&](auto& leaf) { visitor.visit(leaf); });
  }
  template <class Visitor>
  void visit(Visitor& visitor) const {
    for_each_leaf(dictionary, [&](const auto& leaf) { visitor.visit(leaf); });
  }
};

template <class Read>
Dictionary read_stream(Read&& read) {
  const auto listed = std::make_shared<Listed>();
  read(*listed);
  return {listed, &listed->dictionary};
}

// Writes numbers as they are, and each vector as its length and its elements.
inline void write_flat(const std::filesystem::path& path, const KmerDictionary& dictionary) {
  std::ofstream file(path, std::ios::binary);
  const auto put = [&](const void* from, std::size_t bytes) {
    file.write(static_cast<const char*>(from), static_cast<std::streamsize>(bytes));
  };
  for_each_leaf(dictionary, [&]<class Leaf>(const Leaf& leaf) {
    if constexpr (std::is_arithmetic_v<Leaf>) {
      put(&leaf, sizeof leaf);
    } else {
      const std::uint64_t size = leaf.size();
      put(&size, sizeof size);
      put(leaf.data(), leaf.size_bytes());
    }
  });
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

// The baseline loader: fread into vectors.
inline Dictionary read_flat(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  const auto get = [&](void* into, std::size_t size, std::size_t count) {
    if (std::fread(into, size, count, file.get()) != count) throw std::runtime_error(path.string() + " is too short");
  };
  auto dictionary = std::make_shared<KmerDictionary>();
  for_each_leaf(*dictionary, [&]<class Leaf>(Leaf& leaf) {
    if constexpr (std::is_arithmetic_v<Leaf>) {
      get(&leaf, sizeof leaf, 1);
    } else {
      std::uint64_t size = 0;
      get(&size, sizeof size, 1);
      std::vector<typename Leaf::value_type> items(size);
      get(items.data(), sizeof items[0], items.size());
      leaf = std::move(items);
    }
  });
  return dictionary;
}

inline Dictionary open_ours(const std::filesystem::path& path, const onecopy::OpenOptions& options) {
  const auto file = std::make_shared<onecopy::StructFile<KmerDictionary>>(onecopy::open<KmerDictionary>(path, options));
  return {file, &**file};
}

// Opens a file in the mode of that name.
inline Dictionary open_as(std::string_view mode, const std::filesystem::path& path) {
  if (mode == "map") return open_ours(path, {});
  if (mode == "warm") return open_ours(path, {.warm = true});
  if (mode == "copy") return open_ours(path, {.mode = onecopy::Mode::copy});
  if (mode == "s.mmap") return read_stream([&](Listed& listed) { onecopy::streams::mmap(listed, path); });
  if (mode == "s.load") return read_stream([&](Listed& listed) { onecopy::streams::load(listed, path); });
  if (mode == "fread") return read_flat(path);
  throw std::invalid_argument("no way to open: " + std::string(mode));
}

}  // namespace bench
