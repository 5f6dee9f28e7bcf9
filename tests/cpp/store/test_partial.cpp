#include "onecopy/store/prune.hpp"
#include "onecopy/store/store.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"
#include "store/claim.hpp"
#include "store/names.hpp"
#include "store/removal.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

struct InStore : InFolder {
  const Store store = Store::open(folder / "store");
};

void write_text(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

TEST_CASE_FIXTURE(InStore,
                  "a file that was fetched in part is listed with its key, and stays unless an option selects it") {
  const auto at = [&](std::string_view suffix) {
    return store.folder() / (store::digest_of("a url") + std::string(suffix));
  };
  write_text(at(store::partial_suffix), std::string(10000, 'x'));
  write_text(at(store::pieces_suffix), "a url\nboot\n");
  fs::create_directory(store.folder() / store::views_folder);
  const auto list = store.list();
  REQUIRE(list.size() == 1);
  CHECK(list[0].state == ArtefactState::partial);
  CHECK(list[0].key == "a url");
  CHECK(list[0].path == at(store::partial_suffix));
  CHECK_FALSE(store.find("a url"));
  CHECK(prune(store, {}).removed.empty());

  PruneOptions options;
  options.keys = {"a url"};
  const auto claimed =
      store::Claim::take({store::Folder::open(store.folder()), at(store::claim_suffix).filename()}, "a url");
  REQUIRE(claimed);
  CHECK(store.list().at(0).state == ArtefactState::building);
  CHECK(prune(store, options).removed.empty());
}

TEST_CASE_FIXTURE(InStore, "a file that was fetched in part is removed with the list of its pieces") {
  const auto digest = store::digest_of("a url");
  for (const bool has_file : {true, false}) {
    if (has_file) write_text(store.folder() / (digest + ".partial"), "half");
    write_text(store.folder() / (digest + ".pieces"), has_file ? "a url\nboot\n" : "");
    auto seen_before = store.list().at(0);
    --seen_before.last_used_ns;
    const auto opened = store::Folder::open(store.folder());
    if (has_file) CHECK(store::remove(opened, seen_before) == "it was used or built in the meantime");
    PruneOptions options;
    options.everything = true;
    CHECK(prune(store, options).removed.size() == 1);
    CHECK(fs::is_empty(store.folder()));
  }
}

}  // namespace
}  // namespace onecopy
