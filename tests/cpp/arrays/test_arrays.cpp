// What verifying finds is in tests/python/arrays/test_verify.py.
#include <set>

#include "children.hpp"
#include "formats/signatures.hpp"
#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "onecopy/formats/onnx.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

// What a process that died might have left behind.
std::set<std::string> leftovers() {
  std::set<std::string> names;
  for (const auto& folder : {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with(".onecopy-")) names.insert(entry.path().string());
  }
  return names;
}

FormatError error_of(const std::filesystem::path& path) {
  try {
    (void)ArrayFile::open(path);
  } catch (const FormatError& error) {
    CHECK(error.kind() == FormatError::not_this_format);
    CHECK(error.path() == path.string());
    return error;
  }
  throw std::logic_error("it was opened");
}

}  // namespace

TEST_CASE_FIXTURE(AtPath, "a writer that got too little or too much leaves the old file") {
  const auto bytes = testing::random_bytes(100);
  save(path, std::array{NamedArray{{"old", DType::i16, {50}}, bytes}});
  const auto before = testing::read_file(path);
  const auto layout = Layout::plan({{"a", DType::u8, {100}}}, {});
  {
    ArrayWriter writer(path, layout);
    writer.write(Bytes(bytes).first(99));
    CHECK_THROWS_AS(writer.commit(), FormatError);
    writer.write(Bytes(bytes).first(1));
    CHECK_THROWS_AS(writer.write(Bytes(bytes).first(1)), FormatError);
  }
  const std::array wrong{NamedArray{{"a", DType::u8, {99}}, bytes}};
  CHECK_THROWS_AS(save(path, wrong), FormatError);
  CHECK_THROWS_AS((void)save_to_memory("wrong", wrong), FormatError);
  CHECK(testing::read_file(path) == before);
  CHECK(folder.file_count() == 1);
  MemoryFileWriter memory("one byte more than the layout", layout.file_size() + 1);
  ArrayWriter writer(memory, layout);
  writer.write(bytes);
  CHECK_THROWS_AS(writer.commit(), OsError);
}

TEST_CASE("a process that is killed while it fills a memory file leaves nothing") {
  const auto before = leftovers();
  CHECK(WTERMSIG(testing::status_of_child([] {
          MemoryFileWriter writer("half", 40'000'000);
          writer.write(testing::random_bytes(20'000'000));
          return ::raise(SIGKILL) == 0;
        })) == SIGKILL);
  CHECK(leftovers() == before);
}

TEST_CASE_FIXTURE(AtPath, "a part of a file is no file of arrays") {
  save(path, {});
  const auto whole = ArrayFile::open(path);
  for (const MappingOptions& part : {MappingOptions{.offset = 8}, MappingOptions{.length = 8}}) {
    CHECK_THROWS_AS((void)ArrayFile::open(path, part), OsError);
    CHECK_THROWS_AS((void)ArrayFile::from_descriptor(whole.mapping()->descriptor(), "part", part), OsError);
  }
}

TEST_CASE_FIXTURE(InFolder,
                  "the index of a sharded model is opened for callers that ask for it, and refused for others") {
  const auto path = folder / "model.safetensors.index.json";
  std::ofstream(path) << R"(  {"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}})";
  const auto index = ArrayFile::open(path, {}, ShardIndex::accept);
  CHECK(index.index().container() == "shard index");
  CHECK(index.index().entries().empty());
  CHECK(error_of(path).found() == "text");
  std::ofstream(path) << R"([{"weight_map": 1}])";
  CHECK_THROWS_AS((void)ArrayFile::open(path, {}, ShardIndex::accept), FormatError);
}

TEST_CASE_FIXTURE(AtPath, "a file of another format is refused with its name and the advice") {
  const auto refused = [&](std::string content, std::string_view found, std::string_view advice) {
    content.resize(std::max<std::size_t>(content.size(), 64), '\0');
    std::ofstream(path, std::ios::binary) << content;
    const auto error = error_of(path);
    CHECK(found.ends_with(error.found()));
    CHECK(std::string_view(error.what()).find("found " + std::string(found)) != std::string_view::npos);
    CHECK(std::string_view(error.what()).ends_with(advice));
  };
  for (const auto& [signature, name, advice] : signatures::other_formats)
    refused(std::string(signature.offset, '\0') + std::string(signature.bytes), name, advice);
  for (const std::string start : {"a", " ~\t\r\n"})
    refused(start + std::string(64, 'a'), "text", "use 'onecopy import' for rows of JSON");
  refused(std::string(100, '\0') + std::string(onnx::prepacked_end), "weights that were prepacked for ONNX Runtime",
          "");
}

TEST_CASE_FIXTURE(AtPath, "rows are the part of an array that a rank takes") {
  const auto data = testing::random_bytes(6 * 20);
  const auto packed = testing::random_bytes(3);
  save(path, std::array{NamedArray{{"w", DType::i32, {6, 5}}, data}, NamedArray{{"p", DType::f4, {2, 3}}, packed},
                        NamedArray{{"s", DType::i32, {}}, Bytes(data).first(4)}});
  const auto file = ArrayFile::open(path);
  CHECK(testing::same_bytes(file.rows("w", 2, 4), Bytes(data).subspan(40, 40)));
  CHECK(file.rows("w", 0, 6).size() == data.size());
  CHECK(file.rows("w", 6, 6).empty());
  for (const auto& [begin, end] :
       std::array<std::pair<std::uint64_t, std::uint64_t>, 4>{{{4, 7}, {4, 3}, {0, UINT64_MAX}, {7, 7}}})
    CHECK_THROWS_AS((void)file.rows("w", begin, end), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("p", 0, 1), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("s", 0, 1), std::out_of_range);
  save(path, std::array{NamedArray{{"p", DType::u8, {3}}, packed}, NamedArray{{"q", DType::u8, {3}}, packed}},
       {.align = 4096});
  const auto aligned = ArrayFile::open(path);
  REQUIRE(aligned.index().find("#0") != nullptr);
  CHECK_THROWS_AS((void)aligned.entry("#0"), std::out_of_range);  // a filler is no array
}

TEST_CASE_FIXTURE(AtPath, "damaged blocks are reported in the order of the file, whichever was found first") {
  constexpr std::uint64_t block = Layout::checksum_block;
  const std::vector<std::byte> data(block);
  save(path, std::array{NamedArray{{"a", DType::u8, {block}}, data}, NamedArray{{"b", DType::u8, {block}}, data}});
  const auto file = ArrayFile::open(path);
  for (const std::uint64_t before_end : {2 * block, block + 1})  // the first byte of "a", and its last
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
        .seekp(-static_cast<std::streamoff>(before_end), std::ios::end)
        .put('x');
  const auto verifier = make_verifier(file);
  CHECK(verifier->inspect({block / 2, block / 2}));  // where no block begins
  for (const std::uint64_t number : {2U, 1U, 0U}) CHECK(verifier->inspect({number * block, block}));
  try {
    (void)verifier->finish();
    FAIL("the damage was not found");
  } catch (const ChecksumError& error) {
    REQUIRE(error.blocks().size() == 2);
    CHECK(error.blocks()[0].number == 0);
    CHECK(error.blocks()[0].names == std::vector<std::string>{"a"});
    CHECK(error.blocks()[1].number == 1);
    CHECK(error.blocks()[1].names == std::vector<std::string>{"a", "b"});
  }
}

TEST_CASE_FIXTURE(AtPath, "empty lists of ranges and of names are no bytes, and an inspector belongs to one file") {
  save(path, std::array{NamedArray{{"a", DType::u8, {3'000'000}}, testing::random_bytes(3'000'000)}});
  const auto file = ArrayFile::open(path);
  CHECK(verified_ranges(file, std::vector<ByteRange>{}).empty());
  CHECK(verify(file, std::vector<std::string>{}).bytes == 0);
  CHECK(verify(file).bytes == 3'000'000);
  const WarmOptions options{.inspector = make_verifier(file)};
  CHECK_THROWS_AS((void)WarmJob::start({{file.mapping(), everything, nullptr}}, options), std::invalid_argument);
  CHECK(WarmJob::start(file.mapping(), everything, options).wait().verified == 3'000'000);
  save(path, {});  // verifies by its header alone
  CHECK(verify(ArrayFile::open(path)).bytes == 0);
}

}  // namespace onecopy
