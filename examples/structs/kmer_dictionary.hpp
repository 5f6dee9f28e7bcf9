// Where in a genome is this stretch of 31 bases? All k-mers (k = 31) of a set of contigs, with where each comes first.
//
//     const auto dictionary = KmerDictionary::build(read_fasta(input));
//     if (const auto hit = dictionary.lookup("ACGTT...")) std::cout << dictionary.name(hit->contig) << hit->position;
//     dictionary.count_in(read);      // how many of a read's k-mers the genome has
//
// A k-mer is two bits a base in one word, and it is the same as its reverse complement, because a strand may be read
// from either side: the lesser of the two represents both. The k-mers are sorted; a table of their highest bits narrows
// the search, so that a query costs two or three cache misses. A position counts through all contigs; a bit vector with
// a one at the beginning of each contig gives the contig of a position by rank and select.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "genome.hpp"
#include "onecopy/structs/owning_span.hpp"
#include "rank_select.hpp"
#include "string_dictionary.hpp"

namespace example {

using Kmer = std::uint64_t;  // A, C, G, T are 0 ... 3; the first base is in the highest bits

inline constexpr unsigned k = 31;
inline constexpr Kmer kmer_mask = (Kmer{1} << 2 * k) - 1;

// 4 for everything that is no base: an N, a gap, a letter.
inline constexpr auto base_codes = [] {
  std::array<std::uint8_t, 256> codes;
  codes.fill(4);
  for (std::uint8_t code = 0; code < 4; ++code)
    for (const char letter : {"ACGT"[code], "acgt"[code]}) codes[static_cast<std::size_t>(letter)] = code;
  return codes;
}();

// Calls visit(kmer, position) for every canonical k-mer of a sequence, from the left; none contains a base that is not
// A, C, G or T.
template <class Visit>
void for_each_kmer(std::string_view bases, Visit&& visit) {
  Kmer forward = 0;
  Kmer backward = 0;
  unsigned known = 0;  // bases in the window
  for (std::size_t i = 0; i < bases.size(); ++i) {
    const std::uint8_t code = base_codes[static_cast<unsigned char>(bases[i])];
    forward = (forward << 2 | (code & 3U)) & kmer_mask;
    backward = backward >> 2 | Kmer{(code ^ 3U) & 3U} << 2 * (k - 1);
    known = code > 3 ? 0 : known + 1;
    if (known >= k) visit(std::min(forward, backward), i + 1 - k);
  }
}

// Sorted k-mers, found by their highest bits.
struct PrefixTable {
  std::uint64_t shift = 0;                    // of a k-mer, to its prefix
  onecopy::OwningSpan<std::uint32_t> firsts;  // the first k-mer of each prefix, and one more

  // Some 8 k-mers have one prefix.
  static PrefixTable build(const std::vector<Kmer>& sorted) {
    const auto bits = static_cast<unsigned>(std::max(static_cast<int>(std::bit_width(sorted.size())) - 3, 1));
    const std::uint64_t shift = 2 * k - bits;
    std::vector<std::uint32_t> firsts;
    firsts.reserve((std::size_t{1} << bits) + 1);
    std::uint32_t less = 0;
    for (Kmer prefix = 0; prefix <= Kmer{1} << bits; ++prefix) {
      while (less < sorted.size() && sorted[less] >> shift < prefix) ++less;
      firsts.push_back(less);
    }
    return {.shift = shift, .firsts = std::move(firsts)};
  }
};

struct Contigs {
  RankSelect starts;  // a one for the first base of each
  onecopy::OwningSpan<std::uint32_t> name_of;
  StringDictionary names;

  // Throws std::length_error where a position would not fit in 32 bits.
  static Contigs build(const std::vector<Contig>& contigs) {
    std::vector<std::string> names;
    std::vector<std::uint64_t> starts;
    std::uint64_t size = 0;
    for (const Contig& contig : contigs) {
      starts.push_back(size);
      size += contig.bases.size();
      names.push_back(contig.name);
    }
    if (size > std::numeric_limits<std::uint32_t>::max())
      throw std::length_error("a genome of " + std::to_string(size) + " bases: positions have 32 bits");
    auto dictionary = StringDictionary::build(std::move(names));
    std::vector<std::uint32_t> name_of;
    for (const Contig& contig : contigs) name_of.push_back(static_cast<std::uint32_t>(*dictionary.find(contig.name)));
    return {.starts = RankSelect::of_positions(starts, size),
            .name_of = std::move(name_of),
            .names = std::move(dictionary)};
  }
};

struct Hit {
  std::uint64_t contig;
  std::uint64_t position;  // in the contig, of the first base
  friend bool operator==(const Hit&, const Hit&) = default;
};

struct KmerDictionary {
  onecopy::OwningSpan<Kmer> kmers;               // canonical, sorted, each once
  onecopy::OwningSpan<std::uint32_t> positions;  // of each, where it comes first
  PrefixTable prefixes;
  Contigs contigs;

  // Contigs that are shorter than k have no k-mer and are left out. Takes 16 bytes a base beside the result.
  static KmerDictionary build(std::vector<Contig> genome) {
    std::erase_if(genome, [](const Contig& contig) { return contig.bases.size() < k; });
    auto contigs = Contigs::build(genome);
    const auto occurrences = first_occurrences(genome, contigs.starts.size);
    std::vector<Kmer> kmers;
    std::vector<std::uint32_t> positions;
    kmers.reserve(occurrences.size());
    positions.reserve(occurrences.size());
    for (const auto& [kmer, position] : occurrences) {
      kmers.push_back(kmer);
      positions.push_back(static_cast<std::uint32_t>(position));
    }
    auto prefixes = PrefixTable::build(kmers);
    return {.kmers = std::move(kmers),
            .positions = std::move(positions),
            .prefixes = std::move(prefixes),
            .contigs = std::move(contigs)};
  }

  // Where a canonical k-mer comes first.
  std::optional<Hit> lookup(Kmer canonical) const noexcept {
    const std::size_t i = index_of(canonical);
    if (i == kmers.size()) return std::nullopt;
    const std::uint64_t position = positions[i];
    const std::uint64_t contig = contigs.starts.rank(position + 1) - 1;
    return Hit{contig, position - contigs.starts.select(contig)};
  }

  // The same of exactly 31 letters, upper or lower case; nothing for anything else.
  std::optional<Hit> lookup(std::string_view bases) const {
    std::optional<Hit> hit;
    if (bases.size() == k) for_each_kmer(bases, [&](Kmer kmer, std::size_t) { hit = lookup(kmer); });
    return hit;
  }

  bool contains(Kmer canonical) const noexcept { return index_of(canonical) != kmers.size(); }

  struct Count {
    std::uint64_t kmers = 0;
    std::uint64_t found = 0;
  };

  // How many of the k-mers of a sequence are here.
  Count count_in(std::string_view bases) const {
    Count count;
    for_each_kmer(bases, [&](Kmer kmer, std::size_t) {
      ++count.kmers;
      if (contains(kmer)) ++count.found;
    });
    return count;
  }

  // Whether a sequence has k-mers and all of them are here; that they follow each other somewhere is likely then.
  bool contains_sequence(std::string_view bases) const {
    const Count count = count_in(bases);
    return count.kmers > 0 && count.found == count.kmers;
  }

  std::string name(std::uint64_t contig) const { return contigs.names[contigs.name_of[contig]]; }

 private:
  struct Occurrence {
    Kmer kmer;
    std::uint64_t position;
    friend auto operator<=>(const Occurrence&, const Occurrence&) = default;
  };

  static std::vector<Occurrence> first_occurrences(const std::vector<Contig>& genome, std::uint64_t size) {
    std::vector<Occurrence> occurrences;
    occurrences.reserve(size);
    std::uint64_t begin = 0;
    for (const Contig& contig : genome) {
      for_each_kmer(contig.bases, [&](Kmer kmer, std::size_t i) { occurrences.push_back({kmer, begin + i}); });
      begin += contig.bases.size();
    }
    std::ranges::sort(occurrences);
    const auto again = std::ranges::unique(occurrences, {}, &Occurrence::kmer);
    occurrences.erase(again.begin(), again.end());
    return occurrences;
  }

  // kmers.size() where there is none.
  std::size_t index_of(Kmer canonical) const noexcept {
    const std::size_t prefix = canonical >> prefixes.shift;
    const auto* first = kmers.begin() + prefixes.firsts[prefix];
    const auto* last = kmers.begin() + prefixes.firsts[prefix + 1];
    const auto* at = std::lower_bound(first, last, canonical);
    return at != last && *at == canonical ? static_cast<std::size_t>(at - kmers.begin()) : kmers.size();
  }
};

}  // namespace example
