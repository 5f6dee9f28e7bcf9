// A value with everything in it goes into a file and comes back the same, mapped and copied, whole and in parts.
#include "onecopy/base/error.hpp"
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

using onecopy::Mode;
using onecopy::open;
using onecopy::OwningSpan;
using onecopy::save;

namespace {

enum class Strand : std::uint8_t { forward, reverse };

struct Node {
  std::uint32_t key = 0;
  std::uint32_t next = 0;
  friend bool operator==(const Node&, const Node&) = default;
};

struct Rank {
  OwningSpan<std::uint64_t> blocks;
  std::uint64_t ones = 0;
  friend bool operator==(const Rank&, const Rank&) = default;
};

struct Contig {
  std::string name;
  OwningSpan<std::uint16_t> bases;
  bool circular = false;
  std::optional<std::uint32_t> parent;
  Strand strand = Strand::forward;
  friend bool operator==(const Contig&, const Contig&) = default;
};

// Private fields, listed in the style of the essentials library; two of them named.
class Filter {
 public:
  Filter() = default;
  Filter(std::uint64_t seed, std::vector<std::uint64_t> bits) : seed_(seed), bits_(std::move(bits)) {}

  template <class Visitor>
  void visit(Visitor& visitor) {
    visit_fields(visitor, *this);
  }
  template <class Visitor>
  void visit(Visitor& visitor) const {
    visit_fields(visitor, *this);
  }

  friend bool operator==(const Filter&, const Filter&) = default;

 private:
  template <class Visitor, class Self>
  static void visit_fields(Visitor& visitor, Self&& self) {
    visitor.visit(self.seed_);
    visitor.visit(self.bits_, "bits");
    visitor.visit(self.shape_, "shape");
  }

  std::uint64_t seed_ = 7;
  OwningSpan<std::uint64_t> bits_;
  std::array<std::uint16_t, 3> shape_{1, 2, 3};
};

struct Index {
  std::uint64_t seed = 0;
  Rank rank;
  OwningSpan<Node> nodes;
  std::vector<std::string> names;
  OwningSpan<Contig> contigs;
  std::vector<std::vector<std::int32_t>> jagged;
  std::optional<double> limit;
  std::optional<Rank> extra;
  std::array<float, 4> weights{};
  std::array<Rank, 2> pair;
  std::pair<std::int8_t, std::string> labelled;
  Strand strand = Strand::forward;
  bool sorted = false;
  Filter filter;
  std::vector<Filter> filters;
  OwningSpan<OwningSpan<std::uint8_t>> blobs;
  friend bool operator==(const Index&, const Index&) = default;
};

std::vector<std::uint64_t> count_up(std::uint64_t n) {
  std::vector<std::uint64_t> all(n);
  for (std::uint64_t i = 0; i < n; ++i) all[i] = i * i;
  return all;
}

Index full() {
  Index index;
  index.seed = std::numeric_limits<std::uint64_t>::max();
  index.rank = {count_up(1000), 12};
  index.nodes = std::vector<Node>{{1, 2}, {3, 4}, {5, 6}};
  index.names = {"", "one", "a name that is longer than the others"};
  index.contigs = std::vector<Contig>{{.name = "chr1", .bases = std::vector<std::uint16_t>{1, 2, 3}},
                                      {},
                                      {"chrM", std::vector<std::uint16_t>{9}, true, 1, Strand::reverse}};
  index.jagged = {{1, -2}, {}, {3}};
  index.limit = 0.5;
  index.extra = Rank{count_up(3), 1};
  index.weights = {1, 2, 3, -4};
  index.pair = {Rank{count_up(5), 2}, Rank{}};
  index.labelled = {-3, "label"};
  index.strand = Strand::reverse;
  index.sorted = true;
  index.filter = Filter(99, count_up(10));
  index.filters = {Filter(1, count_up(2)), Filter(2, {})};
  index.blobs = std::vector<OwningSpan<std::uint8_t>>{std::vector<std::uint8_t>{1, 2}, {}};
  return index;
}

// A copy that outlives the file it came from.
template <class T>
T opened(const std::filesystem::path& path, const onecopy::OpenOptions& options = {}) {
  const auto file = open<T>(path, options);
  return *file;
}
template <auto... members>
auto opened_part(const std::filesystem::path& path, const onecopy::OpenOptions& options = {}) {
  const auto file = open<members...>(path, options);
  return *file;
}

}  // namespace

TEST_CASE_FIXTURE(onecopy::AtPath, "what was saved is what is opened, mapped and copied") {
  for (const Index& index : {full(), Index{}}) {
    const std::uint64_t bytes = save(path, index);
    CHECK(bytes == std::filesystem::file_size(path));
    for (const Mode mode : {Mode::map, Mode::copy}) {
      const auto file = open<Index>(path, {.mode = mode});
      CHECK(*file == index);
      CHECK(file.report().mode == mode);
      CHECK(file.report().bytes == bytes);
    }
    CHECK(opened<Index>(path, {.warm = true, .verify = true, .threads = 2}) == index);
    CHECK(opened<Index>(path, {.verify = true}) == index);
  }
}

TEST_CASE_FIXTURE(onecopy::AtPath, "elements begin at multiples of their alignment, however large it is") {
  struct alignas(256) Wide {
    std::array<std::uint32_t, 64> words{};
  };
  struct Vectors {
    OwningSpan<std::uint8_t> odd;
    OwningSpan<Wide> wide;
  };
  save(path, Vectors{std::vector<std::uint8_t>(1), std::vector<Wide>(3)});
  for (const Mode mode : {Mode::map, Mode::copy}) {
    const auto file = open<Vectors>(path, {.mode = mode});
    CHECK(reinterpret_cast<std::uintptr_t>(file->wide.data()) % alignof(Wide) == 0);
  }
}

TEST_CASE_FIXTURE(
    onecopy::AtPath,
    "spans of plain elements look into the mapping and keep it alive, and the report says what was copied") {
  save(path, full());
  OwningSpan<std::uint64_t> kept;
  {
    const auto file = open<Index>(path);
    const auto all = file.mapping()->bytes();
    const auto* begin = reinterpret_cast<const std::byte*>(file->rank.blocks.data());
    CHECK(begin > all.data());
    CHECK(begin < all.data() + all.size());
    CHECK(file->rank.blocks.owns());
    CHECK_FALSE(file->contigs[0].bases.owns());
    CHECK(file->contigs.owns());
    kept = file->rank.blocks;
    const auto& report = file.report();
    CHECK(report.objects == 3 + 3 + 3 + 1 + 2 + 2);  // names, contigs, jagged, extra, filters, blobs
    CHECK(report.private_bytes > 3 * sizeof(Contig));
    CHECK(report.viewed_bytes >= 1000 * sizeof(std::uint64_t) + 3 * sizeof(Node));
    CHECK(to_string(report).starts_with("mapped 0.0 MB in "));
    CHECK_FALSE(report.warmed);
    // Every span starts where aligned loads may, and code may over-read a little behind the last.
    const auto& index = file.arrays().index();
    std::uint64_t end = 0;
    for (const auto& entry : index.entries()) {
      if (index.is_filler(entry)) continue;
      CHECK(entry.offset % 64 == 0);
      end = std::max(end, entry.offset + entry.length);
    }
    CHECK(all.size() >= end + 64);
  }
  std::filesystem::remove(path);
  CHECK(kept == OwningSpan<std::uint64_t>(count_up(1000)));
}

TEST_CASE_FIXTURE(onecopy::AtPath, "one member can be warmed, evicted, verified and opened alone") {
  save(path, full());
  const auto file = open<Index>(path);
  CHECK(file.path<&Index::rank>() == "rank");
  CHECK(file.path<&Index::rank, &Rank::blocks>() == "rank.blocks");
  CHECK(&file.get<&Index::rank, &Rank::blocks>() == &file->rank.blocks);
  const auto ranges = file.ranges<&Index::rank>();
  CHECK(ranges.size() == 2);
  CHECK(file.ranges("rank") == ranges);
  CHECK(file.ranges("contigs").size() == 9);
  CHECK_THROWS_AS(file.ranges("ran"), std::out_of_range);
  CHECK(file.ranges("extra").size() > file.ranges("rank").size());  // and whether it is there
  CHECK(file.warm<&Index::rank>().complete);
  CHECK(file.residency<&Index::rank>().bytes > 0);
  CHECK(file.verify<&Index::rank>().bytes > 0);
  CHECK(file.start_warm<&Index::rank>().wait().complete);
  CHECK(file.evict<&Index::rank>().bytes > 0);

  const auto part = open<&Index::rank>(path);
  static_assert(std::is_same_v<decltype(part), const onecopy::StructFile<Rank>>);
  CHECK(*part == full().rank);
  CHECK(part.warm().complete);
  CHECK(part.ranges("blocks").size() == 1);
  CHECK(part.report().bytes == 8 + 8000);
  CHECK(opened_part<&Index::rank, &Rank::blocks>(path) == full().rank.blocks);
  CHECK(opened_part<&Index::contigs>(path) == full().contigs);
  CHECK(opened_part<&Index::seed>(path) == full().seed);
  CHECK(opened_part<&Index::names>(path, {.mode = Mode::copy, .verify = true}) == full().names);
  auto large = full();
  large.jagged.emplace_back(2'000'000);
  save(path, large);
  const auto whole = open<Index>(path, {.verify = true});
  CHECK(whole.report().verified->bytes == whole.verify().bytes);
  const auto one = open<&Index::rank>(path, {.verify = true});
  CHECK(one.report().verified->bytes == one.verify().bytes);
  CHECK(one.verify().bytes < whole.verify().bytes / 2);
}

TEST_CASE_FIXTURE(onecopy::AtPath, "what has no fields is saved too") {
  save(path, count_up(7));
  CHECK(opened<std::vector<std::uint64_t>>(path) == count_up(7));
  CHECK(opened<OwningSpan<std::uint64_t>>(path) == OwningSpan<std::uint64_t>(count_up(7)));
  save(path, std::string("text"));
  CHECK(opened<std::string>(path) == "text");
  save(path, std::vector<std::string>{"a", "b"});
  CHECK(opened<std::vector<std::string>>(path) == std::vector<std::string>{"a", "b"});
  save(path, 3.5);
  CHECK(opened<double>(path) == 3.5);
}

TEST_CASE("byte_size says where the bytes are") {
  const auto report = onecopy::byte_size(full());
  std::uint64_t sum = 0;
  for (const auto& field : report.fields) sum += field.bytes;
  CHECK(sum == report.bytes);
  CHECK(report.of("rank.blocks") == 8000);
  CHECK(report.of("rank") == 8008);
  CHECK(report.of("nodes") == 24);
  CHECK(report.of("names") == 8 + 4 * 8 + 3 + 37);
  CHECK(report.of("nothing") == 0);
  CHECK(to_string(report).find("rank.blocks") != std::string::npos);
}
