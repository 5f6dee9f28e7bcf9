// One step of `onecopy bench structs` in a fresh process: build the files, or open one of them and ask it questions.
//
//     bench_structs build FOLDER [--size BYTES] [--genome FASTA] [--questions N] [--seed N]
//     bench_structs open --questions FILE --mode MODE ROW FILE
//
// MODE is one of `open_as` in forms.hpp; ROW is the driver's name for it, and is ignored. `open` reads a line, writes
// {"phase": "ready"}, waits for the line "go", measures, writes a line of results, and holds everything until the line
// "exit" comes.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "forms.hpp"
#include "genome.hpp"
#include "queries.hpp"
#include "report.hpp"

namespace {

using namespace bench;

// The pairs --name value of a command line, and its other words.
class Arguments {
 public:
  Arguments(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i].starts_with("--") && i + 1 < words.size()) {
        options_[words[i].substr(2)] = words[i + 1];
        ++i;
      } else {
        words_.push_back(words[i]);
      }
    }
  }

  const std::string& word(std::size_t i) const {
    if (i >= words_.size()) throw std::invalid_argument("a word is missing: see the head of bench_structs.cpp");
    return words_[i];
  }
  std::string text(const std::string& name, const std::string& otherwise = {}) const {
    const auto at = options_.find(name);
    return at == options_.end() ? otherwise : at->second;
  }
  std::uint64_t number(const std::string& name, std::uint64_t otherwise) const {
    return options_.contains(name) ? std::stoull(text(name)) : otherwise;
  }

 private:
  std::vector<std::string> words_;
  std::map<std::string, std::string> options_;
};

void say(const Json& json) { std::cout << json.text() << '\n' << std::flush; }

void wait_for(const std::string& word) {
  std::string line;
  if (!std::getline(std::cin, line) || line != word) throw std::runtime_error("expected the word " + word);
}

// Returns a genome whose index has at least the requested size: the given or a made-up one, and mutated copies of it.
std::vector<example::Contig> genome_of(const Arguments& arguments) {
  const std::uint64_t size = arguments.number("size", 500'000'000);
  const std::uint64_t seed = arguments.number("seed", 1);
  std::vector<example::Contig> genome;
  if (const auto path = arguments.text("genome"); !path.empty()) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot open " + path);
    genome = example::read_fasta(file);
  } else {
    const std::uint64_t bases = std::min<std::uint64_t>(5'000'000, size / 50 + 1000);
    for (const auto* name : {"chromosome", "plasmid"})
      genome.push_back(example::random_contig(name, bases / 2, seed + genome.size()));
  }
  std::uint64_t bases = 0;
  for (const auto& contig : genome) bases += contig.bases.size();
  // An index takes 11 to 13 bytes a base, some less where it was mutated.
  const auto needed =
      std::ceil(static_cast<double>(size) / 10.5 / static_cast<double>(std::max<std::uint64_t>(bases, 1)));
  return example::mutate(std::move(genome), seed, static_cast<std::size_t>(std::max(needed, 1.0)) - 1);
}

int build(const Arguments& arguments) {
  const std::filesystem::path folder = arguments.word(1);
  std::filesystem::create_directories(folder);
  const auto start = Clock::now();
  const Listed listed{KmerDictionary::build(genome_of(arguments))};
  const KmerDictionary& dictionary = listed.dictionary;
  const auto build_ns = nanoseconds_since(start);
  const auto bytes = onecopy::save(folder / "index.oc", dictionary);
  onecopy::streams::save(listed, folder / "index.stream");
  write_flat(folder / "index.flat", dictionary);
  const auto questions = Questions::make(dictionary, arguments.number("questions", 1'000'000), 1);
  questions.save(folder / "questions");
  say(Json()
          .add("kmers", dictionary.kmers.size())
          .add("bytes", bytes)
          .add("build_ns", build_ns)
          .add("questions", questions.kmers.size())
          .add("checksum", questions.sum));
  return 0;
}

void check(std::uint64_t found, std::uint64_t expected) {
  if (found != expected)
    throw std::runtime_error("the answers sum to " + std::to_string(found) + ", not to " + std::to_string(expected));
}

// Opens the file, and asks 1, then 1,000, then all questions; then all of them again, when all pages have been touched.
int open(const Arguments& arguments) {
  std::string arguments_of_the_driver;  // for workers in Python
  std::getline(std::cin, arguments_of_the_driver);
  const auto questions = Questions::load(arguments.text("questions"));
  const std::span<const example::Kmer> all(questions.kmers);
  const auto one = all.first(std::min<std::size_t>(1, all.size())), some = all.first(std::min(few, all.size()));
  say(Json().add("phase", "ready"));
  wait_for("go");
  const auto before = Used::now();
  const auto start = Clock::now();
  const auto dictionary = open_as(arguments.text("mode"), arguments.word(2));
  const auto open_ns = nanoseconds_since(start);
  const auto sum_of_one = answer(*dictionary, one);
  const auto first_ns = nanoseconds_since(start);
  check(answer(*dictionary, some), questions.sum_of_few);
  const auto few_ns = nanoseconds_since(start);
  const auto sum = answer(*dictionary, all);
  const auto resident_ns = nanoseconds_since(start);
  const auto after = Used::now();
  const auto again = Clock::now();
  check(answer(*dictionary, all), sum);
  const auto again_ns = nanoseconds_since(again);
  say(Json()
          .add("phase", "resident")
          .add("open_ns", open_ns)
          .add("resident_ns", resident_ns)
          .add("minor_faults", after.minor_faults - before.minor_faults)
          .add("major_faults", after.major_faults - before.major_faults)
          .add("cpu_ms", after.cpu_ms - before.cpu_ms)
          .add("checksum", sum)
          .add("notes", Json()
                            .add("first_ns", first_ns)
                            .add("first_sum", sum_of_one)  // used, so that the compiler keeps the query
                            .add("few_ns", few_ns)
                            .add("answered", all.size())
                            .add("again_ns", again_ns)
                            .add("max_rss", peak_rss())));
  wait_for("exit");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments(argc, argv);
    const auto& what = arguments.word(0);
    if (what == "build") return build(arguments);
    if (what == "open") return open(arguments);
    throw std::invalid_argument("no command " + what);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
