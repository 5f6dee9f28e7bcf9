// Which of these reads come from that genome?
//
//     gzip -dc genome.fa.gz | kmer_dictionary build genome.oc
//     kmer_dictionary query genome.oc < reads.fa
//
// A line for each read: its name, how many of its k-mers the genome has, and where the first of them comes first.
#include <iostream>
#include <optional>
#include <span>
#include <string_view>

#include "genome.hpp"
#include "kmer_dictionary.hpp"
#include "onecopy/structs/structs.hpp"

namespace {

int build(const char* path) {
  const auto dictionary = example::KmerDictionary::build(example::read_fasta(std::cin));
  const auto bytes = onecopy::save(path, dictionary);
  std::cout << dictionary.kmers.size() << " k-mers of " << dictionary.contigs.name_of.size() << " contigs, " << bytes
            << " bytes\n";
  return 0;
}

int query(const char* path) {
  const auto dictionary = onecopy::open<example::KmerDictionary>(path);
  for (const example::Contig& read : example::read_fasta(std::cin)) {
    example::KmerDictionary::Count count;
    std::optional<example::Hit> first;
    example::for_each_kmer(read.bases, [&](example::Kmer kmer, std::size_t) {
      const auto hit = dictionary->lookup(kmer);
      ++count.kmers;
      if (hit) ++count.found;
      if (hit && !first) first = hit;
    });
    std::cout << read.name << ": " << count.found << " of " << count.kmers;
    if (first) std::cout << ", " << dictionary->name(first->contig) << " " << first->position;
    std::cout << "\n";
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  try {
    if (words.size() == 3 && std::string_view(words[1]) == "build") return build(words[2]);
    if (words.size() == 3 && std::string_view(words[1]) == "query") return query(words[2]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  std::cerr << "usage: kmer_dictionary build|query FILE < FASTA\n";
  return 2;
}
