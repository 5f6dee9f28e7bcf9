#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onecopy/base/error.hpp"
#include "onecopy/store/prune.hpp"
#include "onecopy/store/store.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"
#include "store/names.hpp"
#include "store/removal.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

struct InStore : InFolder {
  const Store store = Store::open(folder / "store");
};

void write_text(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Build writes(const std::string& text) {
  return [text](const fs::path& path) { write_text(path, text); };
}

}  // namespace

TEST_CASE_FIXTURE(InStore, "of many threads one builds, and the others see how far it is") {
  std::atomic<int> builds = 0;
  std::atomic<int> seen = 0;
  const auto slowly = [&](const fs::path& path) {
    ++builds;
    report_progress(42);
    while (seen < 3) std::this_thread::yield();
    write_text(path, "content");
  };
  BuildOptions options;
  const auto count = [&] {
    bool reported = false;
    BuildOptions mine;
    mine.on_wait = [&, reported](const Waiting& waiting) mutable {
      if (!reported && waiting.bytes == 42) ++seen, reported = true;
    };
    const auto artefact = store.get_or_build("a", slowly, mine);
    CHECK(read_text(artefact.path) == "content");
    CHECK((artefact.built || artefact.waited > 0));
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(count);
  for (auto& thread : threads) thread.join();
  CHECK(builds == 1);
}

TEST_CASE("of processes that ask for many keys at the same time, one builds each") {
  constexpr std::size_t keys = 100;
  const testing::ScratchFolder folder;
  const auto store = Store::open(folder / "store");
  const auto counted = [&](const fs::path& path) {
    std::ofstream(folder / "builds", std::ios::app) << 'x';
    write_text(path, "content");
  };
  const auto ask = [&]() noexcept {
    BuildOptions options;
    options.durable = false;
    for (std::size_t key = 0; key < keys; ++key) (void)store.get_or_build(std::to_string(key), counted, options);
  };
  std::array<pid_t, 3> children{};
  for (pid_t& child : children) {
    child = ::fork();
    if (child != 0) continue;
    ask();
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(fs::file_size(folder / "builds") == keys);
}

TEST_CASE_FIXTURE(InFolder, "a shared folder and what is built in it can be read by others and not written") {
  const StoreUsers shared{.owner = {}, .shared = true};
  const auto mode = [](const fs::path& path) { return static_cast<unsigned>(fs::status(path).permissions()) & 0777U; };
  fs::create_directory(folder / "store");
  fs::permissions(folder / "store", fs::perms(0770));
  CHECK_THROWS_AS((void)Store::open(folder / "store", shared), OsError);
  fs::permissions(folder / "store", fs::perms(0755));
  CHECK_THROWS_AS((void)Store::open(folder / "store"), OsError);
  const auto store = Store::open(folder / "store", shared);
  const auto artefact = store.get_or_build("a", writes("x"));
  CHECK((mode(artefact.path) & 0077U) == 0044);
  CHECK(mode(fs::path(artefact.path).replace_extension(".about")) == 0644);
  CHECK(store.find("a").has_value());
  CHECK_THROWS_AS((void)Store::open(folder / "store", {.owner = 12345678, .shared = true}), OsError);
  CHECK_THROWS_AS((void)Store::open(folder / "missing", {.owner = 12345678, .shared = true}), OsError);
}

TEST_CASE_FIXTURE(InStore,
                  "the list distinguishes ready artefacts from leftovers, and prune removes what is selected") {
  for (const std::string key : {"a", "b", "c"}) (void)store.get_or_build(key, writes(std::string(100, 'x')));
  const auto in = [&](const std::string& name) { return store.folder() / name; };
  const auto digest = store::digest_of("absent");
  write_text(in(digest + ".oc"), "without a description");
  write_text(in(digest + ".claim"), "");
  write_text(in(store::digest_of("unreadable") + ".about"), "nonsense");
  write_text(in(".onecopy-00000000-00000000"), "half");
  write_text(in("notes.txt"), "of the user");
  const auto count = [&](ArtefactState state) { return std::ranges::count(store.list(), state, &Artefact::state); };
  CHECK(count(ArtefactState::ready) == 3);
  CHECK(count(ArtefactState::leftover) == 2);
  CHECK(count(ArtefactState::stale_claim) == 1);
  CHECK(count(ArtefactState::damaged) == 1);
  CHECK(count(ArtefactState::foreign) == 1);

  PruneOptions options;
  options.dry_run = true;
  CHECK(prune(store, options).removed.size() == 4);
  CHECK(store.list().size() == 8);
  options.dry_run = false;
  CHECK(prune(store, options).removed.size() == 4);
  CHECK(store.list().size() == 4);

  options.keys = {"b"};
  CHECK(prune(store, options).bytes == 100);
  CHECK_FALSE(store.find("b"));
  (void)store.find("a");  // which makes "c" the one used longest ago
  options = {};
  std::uint64_t total = 0;
  for (const auto& artefact : store.list())
    if (artefact.state == ArtefactState::ready) total += artefact.bytes;
  options.max_bytes = total;
  CHECK(prune(store, options).removed.empty());
  options.max_bytes = total - 1;
  const auto report = prune(store, options);
  REQUIRE(report.removed.size() == 1);
  CHECK(report.removed[0].key == "c");
  options = {};
  options.everything = true;
  CHECK(prune(store, options).removed.size() == 1);
  CHECK(fs::exists(in("notes.txt")));
}

TEST_CASE_FIXTURE(InStore, "what was built or used since it was listed is not removed") {
  const auto opened = store::Folder::open(store.folder());
  write_text(store.path("a"), "left by a builder");
  const auto leftover = store.list().at(0);
  CHECK(leftover.state == ArtefactState::leftover);
  (void)store.get_or_build("a", writes("whole"));
  CHECK(store::remove(opened, leftover) == "it was used or built in the meantime");
  const auto ready = store.list().at(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the file system's clock
  (void)store.find("a");
  CHECK(store::remove(opened, ready) == "it was used or built in the meantime");
  CHECK(store::remove(opened, store.list().at(0)).empty());
  CHECK(fs::is_empty(store.folder()));
}

TEST_CASE_FIXTURE(InStore, "a folder that takes the place of the store's while it builds has no part in it") {
  const auto exchange = [&](const fs::path& path) {
    fs::rename(folder / "store", folder / "elsewhere");
    fs::create_directory(folder / "store");
    write_text(path, "planted");
  };
  CHECK_THROWS_AS(store.get_or_build("a", exchange), OsError);
  CHECK(fs::is_empty(folder / "elsewhere"));
  CHECK(read_text(store.path("a")) == "planted");  // not ours: it stays
}

TEST_CASE_FIXTURE(InStore, "an artefact that others might have changed is built again") {
  const auto built = store.get_or_build("a", [](const fs::path& path) {
    write_text(path, "content");
    fs::permissions(path, fs::perms::all);
  });
  CHECK(fs::status(built.path).permissions() == fs::perms::owner_all);
  CHECK(store.find("a"));
  SUBCASE("it may be written by them") { fs::permissions(built.path, static_cast<fs::perms>(0620)); }
  SUBCASE("it has another name") { fs::create_hard_link(built.path, folder / "name"); }
  SUBCASE("its description may be written by them") {
    fs::permissions(fs::path(built.path).replace_extension(".about"), static_cast<fs::perms>(0602));
  }
  CHECK_FALSE(store.find("a"));
  CHECK(store.list().at(0).state == ArtefactState::leftover);
  CHECK(store.get_or_build("a", writes("again")).built);
  CHECK(store.find("a"));
}

TEST_CASE_FIXTURE(InStore, "two builds that wait for each other end with an error, and not never") {
  std::atomic<int> inside = 0;
  std::atomic<int> refused = 0;
  const auto build_that_needs = [&](const std::string& other) {
    return [&, other](const fs::path& path) {
      ++inside;
      while (inside < 2) std::this_thread::yield();
      (void)store.get_or_build(other, writes("x"));
      write_text(path, "x");
    };
  };
  const auto run = [&](const std::string& key, const std::string& other) {
    try {
      (void)store.get_or_build(key, build_that_needs(other));
    } catch (const OsError& error) {
      CHECK(error.code() == EDEADLK);
      ++refused;
    }
  };
  std::thread first(run, "a", "b");
  std::thread second(run, "b", "a");
  first.join();
  second.join();
  CHECK(refused >= 1);
  for (const auto& left : store.list()) CHECK(left.state == ArtefactState::ready);
}

TEST_CASE_FIXTURE(InStore, "a stale claim counts as long as its file is, not as far as its builder was") {
  const pid_t child = ::fork();
  if (child == 0) {
    (void)store.get_or_build("a", [](const fs::path&) {
      report_progress(1'000'000'000);
      ::kill(::getpid(), SIGKILL);
    });
    ::_exit(1);
  }
  ::waitpid(child, nullptr, 0);
  const auto report = prune(store, {});
  REQUIRE(report.removed.size() == 1);
  CHECK(report.removed.at(0).state == ArtefactState::stale_claim);
  CHECK(report.bytes < 1000);
}

TEST_CASE_FIXTURE(InStore, "a source is known by its absolute path") {
  BuildOptions options;
  options.source = "no/such/file";
  CHECK(store.get_or_build("a", writes("x"), options).source == fs::current_path() / "no/such/file");
}

}  // namespace onecopy
