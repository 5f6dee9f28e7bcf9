#include "files/writing/spool.hpp"

#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy {

TEST_CASE_FIXTURE(InFolder, "pieces of any size are read back in any order, from memory, from the file and from both") {
  std::filesystem::path place = folder.path();
  SUBCASE("in a folder") {}
  SUBCASE("in memory") { place.clear(); }
  Spool spool(place);
  const auto all = testing::random_bytes(5 * Spool::held);
  std::mt19937_64 random(1);
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t wanted = random() % 4 == 0 ? random() % (2 * Spool::held) : random() % 1000;
    const std::size_t size = std::min(wanted, all.size() - at);
    CHECK(spool.append(std::span(all).subspan(at, size)) == at);
    at += size;
    CHECK(spool.size() == at);
    const std::size_t begin = random() % (at + 1);
    std::vector<std::byte> piece(at - begin);
    spool.read(begin, piece);
    CHECK(testing::same_bytes(piece, std::span(all).subspan(begin, piece.size())));
  }
  CHECK(folder.file_count() == 0);
}

}  // namespace onecopy
