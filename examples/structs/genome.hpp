// Sequences: read from FASTA, made up, or changed at random. They are input of the k-mer dictionary, not part of it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

struct Contig {  // a stretch of DNA that is known without a gap
  std::string name;
  std::string bases;
};

// Every record of a FASTA file; its name is the first word behind ">", and "contig 1" and so on where there is none.
inline std::vector<Contig> read_fasta(std::istream& input) {
  std::vector<Contig> contigs;
  for (std::string line; std::getline(input, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.starts_with('>')) {
      auto name = line.substr(1, line.find_first_of(" \t") - 1);
      if (name.empty()) name = "contig " + std::to_string(contigs.size() + 1);
      contigs.push_back({std::move(name), {}});
    } else if (!contigs.empty()) {
      contigs.back().bases += line;
    }
  }
  return contigs;
}

// Made up: every base is as likely as the others. The generator's own numbers are used, because the distributions of
// the standard library differ between systems.
inline Contig random_contig(std::string name, std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bases(size, 'A');
  for (char& base : bases) base = "ACGT"[random() >> 62];
  return {std::move(name), std::move(bases)};
}

// The genome (in upper case), and `copies` of it in which every 16th base or so is another one: a family of strains, as
// large as need be. Of the 31-mers of a copy 86 % are new.
inline std::vector<Contig> mutate(std::vector<Contig> genome, std::uint64_t seed, std::size_t copies) {
  std::mt19937_64 random(seed);
  const std::size_t originals = genome.size();
  genome.reserve(originals * (copies + 1));
  for (std::size_t copy = 1; copy <= copies; ++copy)
    for (std::size_t i = 0; i < originals; ++i) {
      Contig contig{genome[i].name + "~" + std::to_string(copy), genome[i].bases};
      for (char& base : contig.bases) {
        const std::uint64_t chance = random();
        const std::size_t code = std::string_view("ACGT").find(base);
        if (chance >> 60 == 0 && code != std::string_view::npos) base = "ACGT"[(code + 1 + chance % 3) % 4];
      }
      genome.push_back(std::move(contig));
    }
  return genome;
}

}  // namespace example
