// One thing in a fresh process: build the files, open one of them and ask it questions, open a million nested values.
// `onecopy bench structs` drives it, and says on stdin when.
//
//     bench_structs build FOLDER [--size BYTES] [--genome FASTA] [--questions N] [--seed N]
//     bench_structs open --questions FILE --mode MODE [--threads N] [--limit-s S] [--group FOLDER] ROW FILE
//     bench_structs fresh --questions FILE --mode MODE [--count N] ROW FILE    # N processes, each asks 1,000 questions
//     bench_structs once --questions FILE --mode MODE ROW FILE                 # one of these
//     bench_structs nested build|open FILE [--count N]
//
// MODE is one of `open_as` in forms.hpp, "read" or "none"; ROW is what the driver calls it, and means nothing here.
// `open` and `fresh` read a line, say {"phase": "ready"}, wait for the line "load", measure, say what they found, and
// hold everything until the line "exit" comes.
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "forms.hpp"
#include "genome.hpp"
#include "nested.hpp"
#include "queries.hpp"
#include "report.hpp"

namespace {

using namespace bench;

// NOLINTNEXTLINE(readability-redundant-declaration): POSIX leaves it to the program; glibc alone declares it, too
extern "C" char** environ;

// --name value pairs, and the words between and behind them.
class Arguments {
 public:
  Arguments(int argc, char** argv) : program_(argv[0]) {
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

  const std::string& program() const { return program_; }
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
  std::string program_;
  std::vector<std::string> words_;
  std::map<std::string, std::string> options_;
};

void say(const Json& json) { std::cout << json.text() << '\n' << std::flush; }

void wait_for(const std::string& word) {
  std::string line;
  if (!std::getline(std::cin, line) || line != word) throw std::runtime_error("expected the word " + word);
}

// A genome whose index has that many bytes or a few more: the one that was given or is made up, and mutated copies.
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
#if ONECOPY_HAS_CEREAL
  write_cereal(folder / "index.cereal", dictionary);
#endif
  const auto questions = Questions::make(dictionary, arguments.number("questions", 1'000'000), 1);
  questions.save(folder / "questions");
  say(Json()
          .add("kmers", dictionary.kmers.size())
          .add("bytes", bytes)
          .add("build_ns", build_ns)
          .add("questions", questions.kmers.size())
          .add("checksum", questions.sum)
          .add("cereal", std::uint64_t{ONECOPY_HAS_CEREAL}));
  return 0;
}

// The least that a copy can cost: one read of the whole file into fresh huge pages.
class ReadOnce {
 public:
  explicit ReadOnce(const std::filesystem::path& path) : size_(std::filesystem::file_size(path)) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
    if (!file) throw std::runtime_error("cannot open " + path.string());
    std::setvbuf(file.get(), nullptr, _IONBF, 0);
    constexpr std::uint64_t huge = 2 << 20;
    base_ = ::mmap(nullptr, size_ + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) throw std::runtime_error("no memory for " + path.string());
    auto* aligned = static_cast<char*>(base_) + (huge - reinterpret_cast<std::uintptr_t>(base_) % huge) % huge;
#ifdef MADV_HUGEPAGE
    ::madvise(aligned, size_, MADV_HUGEPAGE);
#endif
    if (std::fread(aligned, 1, size_, file.get()) != size_) throw std::runtime_error(path.string() + " is too short");
  }
  ReadOnce(const ReadOnce&) = delete;
  ReadOnce& operator=(const ReadOnce&) = delete;
  ~ReadOnce() { ::munmap(base_, size_ + (2 << 20)); }

 private:
  std::uint64_t size_;
  void* base_ = nullptr;
};

void join(const std::string& group) {
  if (group.empty()) return;
  std::ofstream file(std::filesystem::path(group) / "cgroup.procs");
  if (!(file << 0 << std::flush)) throw std::runtime_error("cannot join the control group " + group);
}

void check(std::uint64_t found, std::uint64_t expected) {
  if (found != expected)
    throw std::runtime_error("the answers sum to " + std::to_string(found) + ", not to " + std::to_string(expected));
}

Json resident(const Memory& before, std::uint64_t open_ns, std::uint64_t resident_ns) {
  const auto after = Memory::now();
  return Json()
      .add("phase", "resident")
      .add("open_ns", open_ns)
      .add("resident_ns", resident_ns)
      .add("minor_faults", after.minor_faults - before.minor_faults)
      .add("major_faults", after.major_faults - before.major_faults)
      .add("cpu_ms", (after.cpu_us - before.cpu_us) / 1000);
}

// Opens, and asks 1, then 1,000, then all questions; and all of them again, now that everything was touched.
void measure(const Dictionary& dictionary, const Questions& questions, const Arguments& arguments, const Memory& before,
             Clock::time_point start, std::uint64_t open_ns) {
  const auto threads = arguments.number("threads", 1);
  const auto deadline = start + std::chrono::seconds(arguments.number("limit-s", 3600));
  const std::span<const example::Kmer> all(questions.kmers);
  const auto some = all.first(std::min(few, all.size()));
  Json notes;
  auto answered = answer(*dictionary, all.first(std::min<std::size_t>(1, all.size())), deadline);
  notes.add("first_ns", nanoseconds_since(start));
  answered = answer(*dictionary, some, deadline);
  if (answered.count == some.size()) {
    notes.add("few_ns", nanoseconds_since(start));
    check(answered.sum, questions.sum_of_few);
    answered = answer(*dictionary, all, deadline, threads);
  }
  auto message = resident(before, open_ns, nanoseconds_since(start));
  notes.add("answered", answered.count);
  if (answered.count == all.size()) {
    const auto again = Clock::now();
    check(answer(*dictionary, all, Clock::time_point::max(), threads).sum, answered.sum);
    notes.add("again_ns", nanoseconds_since(again));
    message.add("checksum", answered.sum);
  } else {
    message.add_null("checksum");
  }
  say(message.add("notes", notes.add("max_rss", Memory::now().max_rss)));
}

int open(const Arguments& arguments) {
  std::string table;
  std::getline(std::cin, table);
  const auto questions = Questions::load(arguments.text("questions"), std::numeric_limits<std::size_t>::max());
  join(arguments.text("group"));
  say(Json().add("phase", "ready"));
  wait_for("load");
  const std::string mode = arguments.text("mode");
  const auto before = Memory::now();
  const auto start = Clock::now();
  if (mode == "none" || mode == "read") {
    std::optional<ReadOnce> read;
    if (mode == "read") read.emplace(arguments.word(2));
    const auto ns = nanoseconds_since(start);
    say(resident(before, ns, ns).add_null("checksum").add("notes", Json().add("max_rss", Memory::now().max_rss)));
    wait_for("exit");
  } else {
    const auto dictionary = open_as(mode, arguments.word(2));
    measure(dictionary, questions, arguments, before, start, nanoseconds_since(start));
    wait_for("exit");
  }
  return 0;
}

int once(const Arguments& arguments) {
  const auto questions = Questions::load(arguments.text("questions"), few);
  const auto dictionary = open_as(arguments.text("mode"), arguments.word(2));
  if (dictionary) check(answer(*dictionary, questions.kmers, Clock::time_point::max()).sum, questions.sum_of_few);
  return 0;
}

void run_once(const Arguments& arguments) {
  std::string program = arguments.program();
  std::array<std::string, 7> options{
      "once", "--questions", arguments.text("questions"), "--mode", arguments.text("mode"), "row", arguments.word(2)};
  std::vector<char*> words{program.data()};
  for (std::string& option : options) words.push_back(option.data());
  words.push_back(nullptr);
  pid_t child = 0;
  int status = 0;
  if (::posix_spawn(&child, program.c_str(), nullptr, nullptr, words.data(), environ) != 0)
    throw std::runtime_error("cannot start " + program);
  if (::waitpid(child, &status, 0) != child || status != 0) throw std::runtime_error("a process failed");
}

int fresh(const Arguments& arguments) {
  std::string table;
  std::getline(std::cin, table);
  join(arguments.text("group"));
  say(Json().add("phase", "ready"));
  wait_for("load");
  const auto before = Memory::now();
  const auto start = Clock::now();
  run_once(arguments);
  const auto first_ns = nanoseconds_since(start);
  for (std::uint64_t i = 1; i < arguments.number("count", 100); ++i) run_once(arguments);
  say(resident(before, first_ns, nanoseconds_since(start)).add_null("checksum"));
  wait_for("exit");
  return 0;
}

int nested(const Arguments& arguments) {
  const auto& what = arguments.word(1);
  if (what == "build") return build_nested(arguments.word(2), arguments.number("count", 1'000'000));
  if (what == "open") return open_nested(arguments.word(2));
  throw std::invalid_argument("nested build or nested open, not nested " + what);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Arguments arguments(argc, argv);
    const auto& what = arguments.word(0);
    if (what == "build") return build(arguments);
    if (what == "open") return open(arguments);
    if (what == "fresh") return fresh(arguments);
    if (what == "once") return once(arguments);
    if (what == "nested") return nested(arguments);
    throw std::invalid_argument("no command " + what);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
