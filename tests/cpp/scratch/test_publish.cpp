
#include <fstream>

#include "back_end.hpp"
#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/scratch/publish.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

int error_of_publishing(ScratchFile& scratch, const std::filesystem::path& path, const ArraySpec& spec,
                        const LayoutOptions& options = {}) {
  try {
    publish(scratch, path, spec, options);
  } catch (const OsError& error) {
    return error.code();
  }
  return 0;
}

}  // namespace

TEST_CASE("a scratch file becomes the file that saving its bytes would have made, except for the space of the header") {
  const testing::ScratchFolder folder;
  for (const std::uint64_t columns : {1U, 1000U, 700'000U})
    for (const Kind kind : {Kind::arrays, Kind::image}) {
      const ArraySpec spec{"data", DType::u16, {3, columns}};
      LayoutOptions options;
      options.kind = kind;
      options.metadata["source"] = "slide";
      auto scratch = ScratchFile::create(6 * columns,
                                         {.folder = folder.path(), .head = head_for(spec), .max_resident = 1U << 20U});
      const auto content = testing::random_bytes(6 * columns);
      scratch.copy_in(0, content);
      const Mapping sealed = scratch.seal();
      const int error = error_of_publishing(scratch, folder / "ours", spec, options);
      if (error == EOPNOTSUPP) SKIP_CASE("no unnamed files");
      REQUIRE(error == 0);
      const auto file = ArrayFile::open(folder / "ours");
      CHECK(file.index().kind() == kind);
      CHECK(verify(file).bytes >= content.size());
      const auto found = file.bytes("data");
      CHECK(testing::same_bytes(found, content));
      CHECK(reinterpret_cast<std::uintptr_t>(found.data()) % 4096 == 0);
      save(folder / "saved", std::array{NamedArray{spec, content}}, options);
      const auto saved = ArrayFile::open(folder / "saved");
      CHECK(saved.index().metadata().at("source") == file.index().metadata().at("source"));
      CHECK(saved.index().entries().size() == file.index().entries().size());
    }
}

TEST_CASE("an array that does not fit is an error before anything appears") {
  const testing::ScratchFolder folder;
  const ArraySpec spec{"data", DType::u8, {1000}};
  auto scratch = ScratchFile::create(1000, {.folder = folder.path(), .head = head_for(spec)});
  const Mapping sealed = scratch.seal();
  LayoutOptions long_one;
  long_one.metadata["story"] = std::string(10'000, 'x');
  CHECK(error_of_publishing(scratch, folder / "x", spec, long_one) == EOVERFLOW);
  CHECK_THROWS_AS(publish(scratch, folder / "x", {"data", DType::u8, {999}}), FormatError);
  CHECK(folder.file_count() == 0);
}

}  // namespace onecopy
