#include "formats/signatures.hpp"
#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/formats/onnx.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
TEST_CASE_FIXTURE(InFolder, "a writer that got too little or too much leaves the old file") {
  const auto bytes = testing::random_bytes(100);
  save(folder / "file", std::array{NamedArray{{"old", DType::i16, {50}}, bytes}});
  const auto before = testing::read_file(folder / "file");
  {
    ArrayWriter writer(folder / "file", Layout::plan({{"a", DType::u8, {100}}}, {}));
    writer.write(Bytes(bytes).first(99));
    CHECK_THROWS_WITH_AS(writer.commit(), "'a' lacks its last 1 bytes", FormatError);
    writer.write(Bytes(bytes).first(1));
    CHECK_THROWS_AS(writer.write(Bytes(bytes).first(1)), FormatError);
  }
  const std::array wrong{NamedArray{{"a", DType::u8, {99}}, bytes}};
  CHECK_THROWS_AS(save(folder / "file", wrong), FormatError);
  CHECK(testing::read_file(folder / "file") == before);
  CHECK(folder.file_count() == 1);
}

TEST_CASE_FIXTURE(InFolder, "a part of a file is no file of arrays") {
  const auto path = folder.path() / "a.safetensors";
  save(path, {});
  CHECK_THROWS_WITH_AS((void)ArrayFile::open(path, {.offset = 8, .length = {}}),
                       doctest::Contains("cannot be opened in part"), OsError);
  CHECK_THROWS_WITH_AS((void)ArrayFile::open(path, {.length = 8}), doctest::Contains("cannot be opened in part"),
                       OsError);
}

TEST_CASE_FIXTURE(InFolder,
                  "the index of a sharded model is opened for callers that ask for it, and refused for others") {
  const auto path = folder / "model.safetensors.index.json";
  std::ofstream(path) << R"(  {"weight_map": {"a": "model-00001.safetensors", "b": "model-00002.safetensors"}})";
  const auto index = ArrayFile::open(path, {}, ShardIndex::accept);
  CHECK(index.index().container() == "shard index");
  CHECK(index.index().entries().empty());
  try {
    (void)ArrayFile::open(path);
    FAIL("opened");
  } catch (const FormatError& error) {
    CHECK(error.kind() == FormatError::not_this_format);
    CHECK(error.found() == "text");
    CHECK(error.path() == path.string());
  }
  std::ofstream(path) << R"([{"weight_map": 1}])";
  CHECK_THROWS_AS((void)ArrayFile::open(path, {}, ShardIndex::accept), FormatError);
}

TEST_CASE_FIXTURE(InFolder, "a file of another format is refused with its name and the advice") {
  const auto refused = [&](std::string content, std::string_view found, std::string_view advice) {
    content.resize(std::max<std::size_t>(content.size(), 64), '\0');
    try {
      (void)ArrayFile::open(folder.write("file", std::as_bytes(std::span(content))));
      FAIL("opened");
    } catch (const FormatError& error) {
      CHECK(error.kind() == FormatError::not_this_format);
      CHECK(found.ends_with(error.found()));
      CHECK(std::string_view(error.what()).find("found " + std::string(found)) != std::string_view::npos);
      CHECK(std::string_view(error.what()).ends_with(advice));
    }
  };
  for (const auto& [signature, name, advice] : signatures::other_formats)
    refused(std::string(signature.offset, '\0') + std::string(signature.bytes), name, advice);
  refused(std::string(64, 'a'), "text", "use 'onecopy import' for rows of JSON");
  refused(std::string(100, '\0') + std::string(onnx::prepacked_end), "weights that were prepacked for ONNX Runtime",
          "");
}

TEST_CASE_FIXTURE(InFolder, "rows are the part of an array that a rank takes") {
  const auto data = testing::random_bytes(6 * 20);
  const auto packed = testing::random_bytes(3);
  const std::array arrays{NamedArray{{"w", DType::i32, {6, 5}}, data}, NamedArray{{"p", DType::f4, {2, 3}}, packed},
                          NamedArray{{"s", DType::i32, {}}, Bytes(data).first(4)}};
  save(folder / "file", arrays);
  const auto file = ArrayFile::open(folder / "file");
  CHECK(testing::same_bytes(file.rows("w", 2, 4), Bytes(data).subspan(40, 40)));
  CHECK(file.rows("w", 0, 6).size() == data.size());
  CHECK(file.rows("w", 6, 6).empty());
  CHECK_THROWS_AS((void)file.rows("w", 4, 7), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("w", 4, 3), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("w", 0, UINT64_MAX), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("p", 0, 1), std::out_of_range);
  CHECK_THROWS_AS((void)file.rows("s", 0, 1), std::out_of_range);
}

}  // namespace onecopy
