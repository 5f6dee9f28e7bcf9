// A file that an earlier version wrote opens, whatever changes here: tests/golden/struct.oc.
#include "onecopy/structs/structs.hpp"
#include "precompiled.hpp"
#include "structs_index.hpp"

TEST_CASE("the file that was written on 2026-11-20 opens, and its bytes are those that are written today") {
  const std::filesystem::path path = std::filesystem::path(ONECOPY_GOLDEN) / "struct.oc";
  const auto file = onecopy::open<fuzz::Index>(path, {.verify = true});
  CHECK(file.report().version == 2);
  CHECK(file.report().defaulted.empty());
  CHECK(file->words == onecopy::OwningSpan<std::uint64_t>(std::vector<std::uint64_t>{1, 2, 3}));
  REQUIRE(file->subs.size() == 3);
  CHECK(file->subs[1].name == "one");
  CHECK(file->subs[1].nodes[0].low == 2);
  CHECK(file->subs[2].parent == 1);
  CHECK(file->jagged == std::vector<std::vector<std::uint8_t>>{{1}, {}, {2, 3}});
  REQUIRE(file->extra);
  CHECK(file->extra->nodes[0].high == 6);
  CHECK(file->pair[1][0] == 9);
  CHECK(file->added == 0.5);
}
