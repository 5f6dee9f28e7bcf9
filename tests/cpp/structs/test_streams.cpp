// The stand-in header comes first and alone: code that was written to the library must find all it needs in it.
#include "back_end.hpp"
#include "dictionary.hpp"

#include <map>
#include <memory_resource>
#include <sstream>

#include "onecopy/base/error.hpp"
#include "scratch_folder.hpp"

using dictionaries::bit_vector;
using dictionaries::content;
using dictionaries::dictionary;
using onecopy::OwningSpan;

namespace {

std::string text_of(const std::filesystem::path& path) {
  const auto bytes = onecopy::testing::read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct Sections {
  std::uint8_t head = 9;
  OwningSpan<std::uint64_t> misaligned = std::vector<std::uint64_t>{1, 2};  // at byte 9
  std::string filler = "1234567";                                           // its count at 25, its letters at 33
  OwningSpan<std::uint64_t> aligned = std::vector<std::uint64_t>{3, 4, 5};  // at byte 48

  template <class Visitor>
  void visit(Visitor& visitor) {
    visitor.visit(head), visitor.visit(misaligned), visitor.visit(filler), visitor.visit(aligned);
  }
  template <class Visitor>
  void visit(Visitor& visitor) const {
    visitor.visit(head), visitor.visit(misaligned), visitor.visit(filler), visitor.visit(aligned);
  }
};

using Placed = std::vector<std::uint32_t, essentials::allocator<std::uint32_t>>;

}  // namespace

TEST_CASE_FIXTURE(onecopy::InFolder,
                  "what is saved are the bytes of the format, and every way of loading gives the value back") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const content expected = dictionaries::random_content(seed, 3000);
    const std::string wire = dictionaries::naive_bytes(expected);
    const auto path = folder / "index.bin";
    CHECK(essentials::save(dictionary(expected), path.c_str()) == wire.size());
    CHECK(text_of(path) == wire);
    dictionary loaded, mapped, placed;
    CHECK(essentials::load(loaded, path.c_str()) == wire.size());
    CHECK(loaded.what() == expected);
    CHECK(essentials::mmap(mapped, path.c_str()) == wire.size());
    CHECK(mapped.what() == expected);
    essentials::contiguous_memory_allocator memory;
    CHECK(memory.allocate(placed, path.c_str()) == wire.size());
    CHECK(placed.what() == expected);
    CHECK(essentials::visit<essentials::saver>(mapped, (folder / "again.bin").c_str()) == wire.size());
    CHECK(text_of(folder / "again.bin") == wire);
    dictionary again;
    CHECK(essentials::visit<essentials::loader>(again, path.c_str()) == wire.size());
    CHECK(again.what() == expected);
  }
}

TEST_CASE_FIXTURE(onecopy::AtPath, "a mapped stream views what is aligned, copies what is not, and outlives its name") {
  essentials::save(Sections(), path);
  Sections value{0, {}, "", {}};
  essentials::LoadReport report;
  essentials::mmap(value, path, &report);
  CHECK(value.misaligned == OwningSpan<std::uint64_t>(std::vector<std::uint64_t>{1, 2}));
  CHECK(value.aligned == OwningSpan<std::uint64_t>(std::vector<std::uint64_t>{3, 4, 5}));
  CHECK(value.filler == "1234567");
  CHECK(report.bytes == 72);
  CHECK(report.viewed == 24);
  CHECK(report.misaligned == 1);
  CHECK(report.vectors == 1);
  CHECK(report.copied == 16 + 7);
  CHECK(report.trailing == 0);
  std::ofstream(path, std::ios::app) << "trailing";  // bytes behind the value are no error
  CHECK(essentials::load(value, path, &report) == 72);
  CHECK(report.trailing == 8);
  CHECK(essentials::mmap(value, path, &report) == 72);
  CHECK(report.trailing == 8);
  essentials::saver(path).visit(std::uint64_t{2});  // another file in its place
  essentials::save(std::uint64_t{1}, path);
  CHECK(std::filesystem::file_size(path) == 8);
  const auto kept = std::exchange(value, {}).aligned;
  CHECK(kept[2] == 5);
}

TEST_CASE_FIXTURE(onecopy::InFolder, "elements of a mapped span borrow from it, and elements of a vector own") {
  const std::vector<std::uint64_t> words{1, 2, 3};
  std::vector<bit_vector> subs;
  for (int i = 0; i < 200; ++i) subs.emplace_back(std::vector<std::uint64_t>(words), 192);
  const std::pair<OwningSpan<bit_vector>, std::vector<bit_vector>> both{OwningSpan<bit_vector>(subs), subs};
  essentials::save(both, folder / "file");
  std::pair<OwningSpan<bit_vector>, std::vector<bit_vector>> value;
  essentials::LoadReport report;
  essentials::mmap(value, folder / "file", &report);
  CHECK(report.viewed == 2 * 200 * 24);
  CHECK(value.first.owns());
  CHECK_FALSE(value.first[199].words().owns());
  CHECK(value.second[199].words().owns());
  auto copy = value.first;
  value = {};
  CHECK(copy[150].words()[2] == 3);
}

TEST_CASE("set_mmap beside a stream: reading begins where the stream is, and leaves it behind the value") {
  std::ostringstream out;
  out << "header..";
  onecopy::streams::generic_saver saver(out);
  saver.visit(Sections());
  CHECK(saver.bytes() == 80);
  out << "between.";
  saver.visit(std::uint64_t{77});
  out << "end";
  const std::string text = out.str();
  const std::vector<std::uint64_t> aligned_memory((text.size() + 7) / 8);
  std::memcpy(const_cast<std::uint64_t*>(aligned_memory.data()), text.data(), text.size());
  const auto* base = reinterpret_cast<const std::uint8_t*>(aligned_memory.data());
  std::istringstream in(text);
  in.ignore(8);
  essentials::generic_loader loader(in);
  loader.set_mmap(base, text.size());
  CHECK(loader.is_mmap());
  CHECK(loader.bytes() == 8);
  CHECK(loader.report().trailing == text.size() - 8);
  Sections value;
  std::uint64_t number = 0;
  loader.visit(value);
  CHECK(in.tellg() == 80);
  CHECK(reinterpret_cast<const std::uint8_t*>(value.aligned.data()) == base + 56);
  CHECK_FALSE(value.aligned.owns());
  in.ignore(8);
  loader.visit(number);
  CHECK(number == 77);
  CHECK(loader.bytes() == 96);
  CHECK(loader.bytes_pods() == 1 + 3 * 8 + 8);
  CHECK(loader.bytes_vecs_of_pods() == 16 + 7 + 24);
  CHECK(loader.report().trailing == 3);
  std::string rest;
  in >> rest;
  CHECK(rest == "end");
}

TEST_CASE_FIXTURE(onecopy::InFolder,
                  "one block holds the spans and the vectors that ask for it, and outlives its allocator") {
  std::pair<Sections, Placed> saved;
  saved.second.assign(1000, 5);
  essentials::save(saved, folder / "file");
  std::pair<Sections, Placed> value;
  {
    essentials::contiguous_memory_allocator memory;
    memory.allocate(value, folder / "file");
    const auto inside = [&](const auto& items) {
      const auto* first = reinterpret_cast<const std::uint8_t*>(items.data());
      return first >= memory.begin() && first + items.size() * sizeof(*items.data()) <= memory.end();
    };
    CHECK(inside(value.first.misaligned));
    CHECK(inside(value.first.aligned));
    CHECK(inside(value.second));
    CHECK(memory.report().placed == 16 + 24 + 4000);
    CHECK(memory.report().copied == 7);
    CHECK(memory.size() >= 16 + 24 + 4000);
  }
  const auto copy = value;
  value.second.resize(5000, 6);  // grows out of the block
  value.first = {};
  CHECK(value.second[999] == 5);
  CHECK(value.second[4999] == 6);
  CHECK(copy.second == saved.second);
  CHECK(copy.first.aligned[1] == 4);
  std::pmr::monotonic_buffer_resource memory;
  std::pmr::vector<std::uint32_t> other(&memory);
  essentials::save(std::vector<std::uint32_t>(100, 3), folder / "file");
  essentials::load(other, folder / "file");
  CHECK(other.size() == 100);
  CHECK(other.get_allocator().resource() == &memory);  // a vector keeps its allocator
}

TEST_CASE_FIXTURE(onecopy::AtPath, "what is loaded replaces what was there, also if it is nothing") {
  using Values = std::pair<std::optional<std::uint32_t>, std::pair<std::vector<std::uint32_t>, std::string>>;
  essentials::save(Values(), path);
  Values loaded{7, {{1, 2}, "three"}};
  essentials::load(loaded, path);
  CHECK(loaded == Values());
}

TEST_CASE_FIXTURE(onecopy::AtPath, "a save that fails leaves the old file, and what cannot be opened is an error") {
  struct Failing {
    mutable int visits = 0;
    void visit(onecopy::streams::generic_saver& saver) const {
      saver.visit(std::vector<int>(1000));
      if (++visits == 2) throw std::runtime_error("no more");  // the first one only counts
    }
  };
  essentials::save(std::uint64_t{1}, path);
  CHECK_THROWS_AS(essentials::save(Failing(), path), std::runtime_error);
  CHECK(std::filesystem::file_size(path) == 8);
  CHECK(folder.file_count() == 1);
  CHECK_THROWS_AS(essentials::save(1, folder / "no" / "file"), onecopy::OsError);
  CHECK_THROWS_AS(essentials::saver(folder / "no" / "file"), onecopy::OsError);
  Sections value;
  CHECK_THROWS_AS(essentials::load(value, folder / "missing"), onecopy::OsError);
  CHECK_THROWS_AS(essentials::mmap(value, folder / "missing"), onecopy::OsError);
  CHECK_THROWS_AS(essentials::load(value, folder.path()), onecopy::OsError);
  CHECK_THROWS_AS(essentials::mmap(value, folder.write("empty", {})), onecopy::OsError);
  std::ostringstream broken;
  broken.setstate(std::ios::badbit);
  CHECK_THROWS_AS(onecopy::streams::generic_saver(broken).visit(1), onecopy::OsError);
  if (!std::filesystem::exists("/dev/full")) SKIP_CASE("no /dev/full");
  CHECK_THROWS_WITH_AS(essentials::saver("/dev/full").visit(1),  // four bytes would stay in a buffer
                       doctest::Contains("'/dev/full': No space left"), onecopy::OsError);
}

TEST_CASE("the sizer knows what save will write, by field, and print_size writes a line for each") {
  const content expected = dictionaries::random_content(3, 300);
  dictionary value(expected);
  essentials::sizer tree("dictionary");
  tree.visit(value);
  CHECK(tree.bytes() == dictionaries::naive_bytes(expected).size());
  std::map<std::string, const essentials::sizer::node*> fields;
  std::size_t sum = 0;
  for (const auto& field : tree.root().children) {
    fields[field.name] = &field;
    sum += field.bytes;
  }
  CHECK(sum == tree.bytes());
  CHECK(fields.at("words")->bytes == 16 + 8 * expected.words.size());
  const auto& spans = *fields.at("spans");
  REQUIRE(spans.children.size() == 1);  // all elements in one node
  CHECK(spans.children[0].count == expected.subs.size());
  CHECK(spans.children[0].children.size() == 2);
  CHECK(spans.bytes == 8 + spans.children[0].bytes);
  std::ostringstream out;
  Sections sections;
  CHECK(essentials::print_size(sections, out) == 72);
  const std::string text = out.str();
  CHECK(text.find("Sections' - bytes = 72 (100%)\n    'unsigned char' - bytes = 1 (1.38889%)\n") != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);
  const std::uint32_t constant = 1;
  CHECK(essentials::print_size(constant, out) == 4);
}

TEST_CASE("padding is written as zeros") {
#ifdef ONECOPY_CLEARS_PADDING
  std::vector<dictionaries::point> points(3);
  std::memset(static_cast<void*>(points.data()), 0xAA, sizeof(points[0]) * points.size());
  for (auto& point : points) point.x = 1, point.y = 2;
  std::ostringstream out;
  onecopy::streams::generic_saver(out).visit(points);
  std::string expected("\3\0\0\0\0\0\0\0", 8);
  for (int i = 0; i < 3; ++i) expected.append("\1\0\0\0\2\0\0\0", 8);
  CHECK(out.str() == expected);
#else
  MESSAGE("this compiler cannot clear padding");
#endif
}

TEST_CASE("the small pieces of the library are there") {
  std::stringstream stream;
  essentials::save_pod(stream, 7);
  int seven = 0;
  essentials::load_pod(stream, seven);
  CHECK(seven == 7);
  CHECK(essentials::vec_bytes(std::vector<std::uint16_t>(5)) == 18);
  CHECK(essentials::pod_bytes(seven) == 4);
  CHECK(essentials::version_number(1, 2, 30).to_string() == "1.2.30");
  static_assert(essentials::is_pod<dictionaries::point>::value && !essentials::is_pod<bit_vector>::value);
  static_assert(essentials::is_owning_span<essentials::owning_span<int>>::value);
  static_assert(essentials::is_owning_span_v<essentials::owning_span<int>>);
  struct Own {
    essentials::contiguous_memory_allocator memory;
    essentials::owning_span<int> items;
    essentials::contiguous_memory_allocator& get_allocator() { return memory; }
    void visit(essentials::generic_loader& visitor) { visitor.visit(items); }
  };
  const onecopy::testing::ScratchFolder folder;
  essentials::save(std::vector<int>{1, 2, 3}, folder / "file");
  Own own;
  CHECK(essentials::load_with_custom_memory_allocation(own, folder / "file") == 20);
  CHECK(own.items[2] == 3);
  CHECK(reinterpret_cast<const std::uint8_t*>(own.items.data()) == own.memory.begin());
}
