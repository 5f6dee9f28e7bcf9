// The twin: an unordered_map of k-mers as strings of letters; the reverse complement letter by letter.
#include <sstream>
#include <unordered_map>

#include "genome.hpp"
#include "in_every_mode.hpp"
#include "kmer_dictionary.hpp"
#include "precompiled.hpp"

using example::Contig;
using example::Hit;
using example::k;
using example::KmerDictionary;

namespace {

std::string upper(std::string bases) {
  std::ranges::transform(bases, bases.begin(), [](char c) { return c >= 'a' ? static_cast<char>(c - 32) : c; });
  return bases;
}

std::string canonical(const std::string& bases) {
  std::string backward(bases.rbegin(), bases.rend());
  for (char& base : backward) base = "TGCA"[std::string("ACGT").find(base)];
  return std::min(bases, backward);
}

bool is_known(const std::string& bases) { return bases.find_first_not_of("ACGT") == std::string::npos; }

using Twin = std::unordered_map<std::string, std::pair<std::string, std::uint64_t>>;

Twin twin_of(const std::vector<Contig>& genome) {
  Twin twin;
  for (const auto& [name, bases] : genome)
    for (std::size_t i = 0; i + k <= bases.size(); ++i)
      if (const auto kmer = upper(bases.substr(i, k)); is_known(kmer))
        twin.emplace(canonical(kmer), std::pair(name, std::uint64_t{i}));
  return twin;
}

void check_every_answer(const std::vector<Contig>& genome, const std::vector<Contig>& questions) {
  const auto twin = twin_of(genome);
  onecopy::testing::in_every_mode(KmerDictionary::build(genome), [&](const KmerDictionary& dictionary) {
    REQUIRE(dictionary.kmers.size() == twin.size());
    std::size_t wrong = 0;
    for (const auto& [name, bases] : questions) {
      std::uint64_t kmers = 0;
      std::uint64_t found = 0;
      for (std::size_t i = 0; i + k <= bases.size(); ++i) {
        const auto kmer = upper(bases.substr(i, k));
        const auto expected = is_known(kmer) ? twin.find(canonical(kmer)) : twin.end();
        const auto hit = dictionary.lookup(bases.substr(i, k));
        if (hit.has_value() != (expected != twin.end())) ++wrong;
        if (hit && std::pair(dictionary.name(hit->contig), hit->position) != expected->second) ++wrong;
        if (is_known(kmer)) ++kmers;
        if (hit) ++found;
      }
      const auto count = dictionary.count_in(bases);
      CHECK(count.kmers == kmers);
      CHECK(count.found == found);
      CHECK(dictionary.contains_sequence(bases) == (kmers > 0 && found == kmers));
    }
    CHECK(wrong == 0);
  });
}

}  // namespace

TEST_CASE("a k-mer dictionary agrees with a map of strings on random contigs and their mutations") {
  const std::vector<Contig> originals{example::random_contig("one", 2000, 1), example::random_contig("two", 31, 2),
                                      example::random_contig("three", 500, 3)};
  const auto family = example::mutate(originals, 7, 3);
  REQUIRE(family.size() == 12);
  const std::vector<Contig> half(family.begin(), family.begin() + 6);
  check_every_answer(half, family);
}

TEST_CASE("letters that are no base part the k-mers, and lower case is upper case") {
  const std::string bases = example::random_contig("", 100, 5).bases;
  std::string low = bases;
  std::ranges::transform(low, low.begin(), [](char c) { return static_cast<char>(c + 32); });
  const std::vector<Contig> genome{{"gap", bases.substr(0, 50) + "N" + bases.substr(50)}, {"low", low}};
  check_every_answer(genome, {{"", bases}, {"", low}, {"", bases.substr(0, 40) + "-" + bases.substr(40)}});
}

TEST_CASE("a base behind a letter that is none keeps its value") {
  for (const char letter : std::string("NRYn-*\x80"))
    for (const char base : std::string("ACGT")) {
      const std::string kmer = base + example::random_contig("", k - 1, 4).bases;
      check_every_answer({{"", std::string(40, 'A') + letter + kmer}}, {{"", kmer}});
    }
}

TEST_CASE("a read is the same from either strand, and the first of equal places is reported") {
  const auto contig = example::random_contig("", 31, 9).bases;
  const auto dictionary = KmerDictionary::build({{"a", contig + contig}, {"b", contig}});
  std::string backward(contig.rbegin(), contig.rend());
  for (char& base : backward) base = "TGCA"[std::string("ACGT").find(base)];
  CHECK(dictionary.lookup(contig) == Hit{0, 0});
  CHECK(dictionary.lookup(backward) == Hit{0, 0});
  CHECK(dictionary.contains_sequence(backward + backward));
}

TEST_CASE("nothing is in an empty dictionary, and contigs shorter than k are not in one") {
  check_every_answer({}, {example::random_contig("", 40, 1)});
  check_every_answer({example::random_contig("short", 30, 1)}, {example::random_contig("", 30, 1), {"", ""}});
  const auto dictionary = KmerDictionary::build({{"short", std::string(30, 'A')}, {"long", std::string(31, 'A')}});
  CHECK(dictionary.name(dictionary.lookup(std::string(31, 'T'))->contig) == "long");
  CHECK_FALSE(dictionary.lookup(std::string(30, 'A')).has_value());
  CHECK_FALSE(dictionary.lookup(std::string(32, 'A')).has_value());
}

TEST_CASE("a FASTA file is read with its names, without them, and with the line ends of Windows") {
  std::istringstream input(">chr1 first\r\nACGT\r\nAC\r\n>\nGG\n\nTT\n>chr2\tx\n");
  std::string found;
  for (const auto& [name, bases] : example::read_fasta(input)) found += name + "=" + bases + ";";
  CHECK(found == "chr1=ACGTAC;contig 2=GGTT;chr2=;");
}
