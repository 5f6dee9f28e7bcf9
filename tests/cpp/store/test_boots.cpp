
#include <fstream>
#include <string>

#include "back_end.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "scratch_folder.hpp"
#include "store/about.hpp"
#include "store/boots.hpp"
#include "store/claim.hpp"
#include "store/names.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

struct InStore : InFolder {
  const Store store = Store::open(folder / "store");
};

constexpr std::int64_t minute_ns = 60'000'000'000;

Build writes(const std::string& text) {
  return [text](const fs::path& path) { std::ofstream(path, std::ios::binary) << text; };
}

store::Files files_in(const Store& store, const std::string& key) {
  return store::files_of(store::Folder::open(store.folder()), store::digest_of(key));
}

// An artefact that was not flushed, with a description that was changed; none where the kernel or the disk has no
// boots.
template <class Change>
bool built_and_changed(const Store& store, const Change& change) {
  BuildOptions options;
  options.durable = false;
  CHECK(store.get_or_build("a", writes("content"), options).built);
  auto about = store::read_about(files_in(store, "a").about);
  REQUIRE(about);
  CHECK(about->boot == store::boot_to_record(store::Folder::open(store.folder())));
  if (about->boot.empty()) return false;
  change(*about);
  store::write_about(files_in(store, "a").about, *about);
  return true;
}

}  // namespace

TEST_CASE("a description has its boot at the beginning, and one without is as it always was") {
  store::About about;
  about.key = "k";
  const std::string text = store::to_text(about);
  CHECK(text.starts_with("onecopy artefact 1\nkey 1 k\n"));
  CHECK(store::parse_about(text) == about);
  about.boot = "b\n c";
  const auto rest = text.substr(19);
  CHECK(store::to_text(about) == "onecopy artefact 2\nboot 4 b\n c\n" + rest);
  CHECK(store::parse_about(store::to_text(about)) == about);
  for (const std::string& wrong :
       {"onecopy artefact 2\n" + rest, "onecopy artefact 2\nboot 0 \n" + rest, "onecopy artefact 1\nboot 1 b\n" + rest,
        "onecopy artefact 3\nboot 1 b\n" + rest, text + "boot 1 b\n"})
    CHECK_THROWS_AS(store::parse_about(wrong), FormatError);
}

TEST_CASE_FIXTURE(InStore, "an old artefact is flushed by the next who asks, and counts for good") {
  const auto older = [](store::About& about) { about.created_ns -= minute_ns; };
  if (!built_and_changed(store, older)) SKIP_CASE("the kernel reports no boot");
  const auto before = *store::read_about(files_in(store, "a").about);
  {
    const auto claim = store::Claim::take(files_in(store, "a").claim, "a");
    CHECK(store.find("a"));  // another thread has claimed it: it is unchanged
    CHECK(store.list().front().state == ArtefactState::ready);
    CHECK(store::read_about(files_in(store, "a").about) == before);
  }
  auto replaced = before;
  ++replaced.created_ns;
  const auto artefact = store::open_as_built(before, files_in(store, "a").artefact);
  CHECK(store::settle_if_old(files_in(store, "a"), replaced, artefact));  // it has been built again meanwhile
  CHECK(store::read_about(files_in(store, "a").about) == before);
  CHECK(store.find("a"));
  auto expected = before;
  expected.boot.clear();
  CHECK(store::read_about(files_in(store, "a").about) == expected);
  CHECK(store.list().front().reason == "ready");
  CHECK(std::distance(fs::directory_iterator(store.folder()), {}) == 2);
}

TEST_CASE_FIXTURE(InStore, "a description that a power cut left empty is none") {
  for (const auto& left : {std::string(), std::string(417, '\0')}) {
    (void)store.get_or_build("a", writes("content"));
    std::ofstream(files_in(store, "a").about.path(), std::ios::binary) << left;
    CHECK_FALSE(store.find("a"));
    CHECK(store.list().front().state == ArtefactState::leftover);
    CHECK(store.get_or_build("a", writes("content")).built);
  }
}

TEST_CASE("in memory no boot is recorded") {
  if (!fs::is_directory("/dev/shm")) SKIP_CASE("no /dev/shm");
  const fs::path path = "/dev/shm/onecopy-test-of-boots-" + std::to_string(os::process_id());
  const auto folder = store::Folder::open(path);
  const auto system = os::file_system_of(folder.descriptor());
  if (system && system.value.storage == os::Storage::memory) CHECK(store::boot_to_record(folder).empty());
  fs::remove(path);
}

}  // namespace onecopy
