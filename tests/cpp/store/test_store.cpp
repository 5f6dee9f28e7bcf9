#include "back_end.hpp"
#include "children.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/store/prune.hpp"
#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"
#include "store/about.hpp"
#include "store/boots.hpp"
#include "store/claim.hpp"
#include "store/names.hpp"
#include "store/removal.hpp"

namespace onecopy {
namespace {

namespace fs = std::filesystem;

void write_text(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Build writes(const std::string& text) {
  return [text](const fs::path& path) { write_text(path, text); };
}

struct InStore : InFolder {
  const Store store = Store::open(folder / "store");

  store::Folder opened() const { return store::Folder::open(store.folder()); }
  store::Files files_of(const std::string& key) const { return store::files_of(opened(), store::digest_of(key)); }
  auto count(ArtefactState state) const { return std::ranges::count(store.list(), state, &Artefact::state); }
};

store::About some_about() {
  return {.key = "a key of\nthree\nlines \xe4 \0",
          .bytes = 12345678901234,
          .mtime_ns = -5,
          .created_ns = 1'700'000'000'000'000'000,
          .source = "/data/caf\xc3\xa9 42 \n",
          .source_identity = {.device = 0, .inode = 7, .size = UINT64_MAX, .mtime_ns = 3},
          .boot = "b\n c"};
}

}  // namespace

TEST_CASE("the digest is FNV-1a of 128 bits, as its authors publish it") {
  CHECK(store::digest_of("") == "6c62272e07bb014262b821756295c58d");
  CHECK(store::digest_of("a") == "d228cb696f1a8caf78912b704e4a8964");
  CHECK(store::digest_of("foobar") == "343e1662793c64bf6f0d3597ba446f18");
}

TEST_CASE("names of the store are distinguished from all others") {
  const auto digest = store::digest_of("a");
  for (const std::string suffix : {".oc", ".about", ".claim"}) {
    CHECK(store::parts_of(digest + suffix).digest == digest);
    CHECK(store::parts_of(digest + suffix).suffix == suffix);
  }
  for (const auto& name : {std::string(), digest, digest + ".txt", digest + "0.oc", digest.substr(1) + ".oc",
                           "G" + digest.substr(1) + ".oc", digest + ".oc2"})
    CHECK(store::parts_of(name).digest.empty());
}

TEST_CASE("a description reads back as it was written, with its boot at the beginning or without one") {
  const auto about = some_about();
  const std::string text = store::to_text(about);
  CHECK(text.starts_with("onecopy artefact 2\nboot 4 b\n c\nkey "));
  CHECK(store::parse_about(text) == about);
  auto flushed = about;
  flushed.boot.clear();
  const std::string plain = store::to_text(flushed);
  CHECK(plain == "onecopy artefact 1\n" + text.substr(31));
  CHECK(store::parse_about(plain) == flushed);
  CHECK(store::parse_about(store::to_text(store::About{})) == store::About{});
  const auto rest = plain.substr(19);
  for (const std::string& wrong :
       {"onecopy artefact 2\n" + rest, "onecopy artefact 2\nboot 0 \n" + rest, "onecopy artefact 1\nboot 1 b\n" + rest,
        "onecopy artefact 3\nboot 1 b\n" + rest, plain + "boot 1 b\n", text + "x"})
    CHECK_THROWS_AS(store::parse_about(wrong), FormatError);
}

TEST_CASE("a description that was cut, or in which a byte is another one, is an error or another description") {
  const auto text = store::to_text(some_about());
  for (std::size_t length = 0; length < text.size(); ++length)
    CHECK_THROWS_AS((void)store::parse_about(std::string_view(text).substr(0, length)), FormatError);
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char byte : {'\0', ' ', '\n', '0', '9', '-', '\xff'}) {
      auto changed = text;
      changed[at] = byte;
      bool passed_for_it = false;
      try {
        passed_for_it = changed != text && store::parse_about(changed) == some_about();
      } catch (const FormatError&) {  // as it should be
      }
      CHECK_FALSE(passed_for_it);
    }
  }
}

TEST_CASE_FIXTURE(InStore, "of many threads one builds, and the others see how far it is") {
  std::atomic<int> builds = 0;
  std::atomic<int> seen = 0;
  const auto slowly = [&](const fs::path& path) {
    ++builds;
    report_progress(42);
    while (seen < 3) std::this_thread::yield();
    write_text(path, "content");
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      bool reported = false;
      const auto on_wait = [&](const Waiting& waiting) {
        if (waiting.bytes == 42 && !std::exchange(reported, true)) ++seen;
      };
      const auto artefact = store.get_or_build("a", slowly, {.on_wait = on_wait});
      CHECK(read_text(artefact.path) == "content");
      CHECK((artefact.built || artefact.waited > 0));
    });
  threads.clear();
  CHECK(builds == 1);
}

TEST_CASE_FIXTURE(InStore,
                  "the list distinguishes ready artefacts from leftovers, and prune removes what is selected") {
  for (const std::string key : {"a", "b", "c"}) (void)store.get_or_build(key, writes(std::string(100, 'x')));
  const auto in = [&](const std::string& name) { return store.folder() / name; };
  write_text(store.path("absent"), "without a description");
  write_text(store.path("absent").replace_extension(".claim"), "");
  write_text(store.path("unreadable").replace_extension(".about"), "nonsense");
  write_text(in(".onecopy-00000000-00000000"), "half");
  write_text(in("notes.txt"), "of the user");
  CHECK(count(ArtefactState::ready) == 3);
  CHECK(count(ArtefactState::leftover) == 2);
  CHECK(count(ArtefactState::stale_claim) == 1);
  CHECK(count(ArtefactState::damaged) == 1);
  CHECK(count(ArtefactState::foreign) == 1);
  CHECK(prune(store, {.dry_run = true}).removed.size() == 4);
  CHECK(store.list().size() == 8);
  CHECK(prune(store, {}).removed.size() == 4);
  CHECK(store.list().size() == 4);
  CHECK(prune(store, {.keys = {"b"}}).bytes == 100);
  CHECK_FALSE(store.find("b"));

  CHECK(prune(store, {.max_bytes = 200}).removed.empty());
  {
    const auto used = store.find("c");
    (void)store.find("a");  // which makes "c" the one used longest ago
    const auto report = prune(store, {.max_bytes = 199});
    REQUIRE(report.removed.size() == 1);
    CHECK(report.removed[0].key == (report.kept.empty() ? "c" : "a"));  // where it is known who has "c" open
  }
  CHECK(prune(store, {.everything = true}).removed.size() == 1);
  CHECK(fs::exists(in("notes.txt")));
}

TEST_CASE_FIXTURE(InStore, "what was built or used since it was listed is not removed") {
  write_text(store.path("a"), "left by a builder");
  const auto leftover = store.list().at(0);
  CHECK(leftover.state == ArtefactState::leftover);
  (void)store.get_or_build("a", writes("whole"));
  CHECK(!store::remove(opened(), leftover).empty());
  const auto ready = store.list().at(0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a tick of the file system's clock
  (void)store.find("a");
  CHECK(!store::remove(opened(), ready).empty());
  CHECK(store::remove(opened(), store.list().at(0)).empty());
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

TEST_CASE_FIXTURE(InStore, "an artefact that was changed, or that others might have changed, is built again") {
  const auto built = store.get_or_build("a", [](const fs::path& path) {
    write_text(path, "content");
    fs::permissions(path, fs::perms::all);
  });
  CHECK(fs::status(built.path).permissions() == fs::perms::owner_all);
  CHECK(store.find("a"));
  SUBCASE("it was written, as many bytes") {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    write_text(built.path, "CONTENT");
  }
  SUBCASE("it may be written by them") { fs::permissions(built.path, static_cast<fs::perms>(0620)); }
  SUBCASE("it has another name") { fs::create_hard_link(built.path, folder / "name"); }
  SUBCASE("its description may be written by them") {
    fs::permissions(fs::path(built.path).replace_extension(".about"), static_cast<fs::perms>(0602));
  }
  SUBCASE("a power cut left its description empty") { write_text(files_of("a").about.path(), ""); }
  SUBCASE("a power cut left zeros of its description") {
    write_text(files_of("a").about.path(), std::string(417, '\0'));
  }
  CHECK_FALSE(store.find("a"));
  CHECK(count(ArtefactState::leftover) == 1);
  CHECK(store.get_or_build("a", writes("again")).built);
  CHECK(store.find("a"));
  fs::resize_file(files_of("a").about.path(), (1U << 24U) + 1);
  CHECK_THROWS_WITH_AS((void)store.find("a"), doctest::Contains("more than the maximum"), FormatError);
}

TEST_CASE_FIXTURE(InStore, "two builds that wait for each other end with an error, and not never") {
  std::atomic<int> inside = 0;
  std::atomic<int> refused = 0;
  const auto run = [&](const std::string& key, const std::string& other) {
    try {
      (void)store.get_or_build(key, [&](const fs::path& path) {
        ++inside;
        while (inside < 2) std::this_thread::yield();
        (void)store.get_or_build(other, writes("x"));
        write_text(path, "x");
      });
    } catch (const OsError& error) {
      CHECK(error.code() == EDEADLK);
      ++refused;
    }
  };
  std::thread first(run, "a", "b");
  run("b", "a");
  first.join();
  CHECK(refused >= 1);
  CHECK(count(ArtefactState::ready) == std::ssize(store.list()));
}

TEST_CASE_FIXTURE(InStore, "a builder waits for another artefact only as long as that is built") {
  const auto awaited = [&] { return store::look_at_claim(files_of("a").claim)->holder.waits_for; };
  std::atomic<bool> built = false;
  std::atomic<bool> waiting = false;
  const std::jthread other([&] {
    (void)store.get_or_build("b", [&](const fs::path& path) {
      for (built = true; !waiting;) std::this_thread::yield();
      write_text(path, "b");
    });
  });
  while (!built) std::this_thread::yield();
  (void)store.get_or_build("a", [&](const fs::path& path) {
    const auto on_wait = [&](const Waiting&) {
      CHECK(awaited() == store::digest_of("b"));
      waiting = true;
    };
    CHECK(store.get_or_build("b", writes("x"), {.on_wait = on_wait}).waited > 0);
    CHECK(awaited().empty());
    write_text(path, "a");
  });
}

TEST_CASE_FIXTURE(InStore, "a claim counts as far as its builder is, and a stale one only as long as its file") {
  const auto killed = [&](const fs::path&) {
    report_progress(1'000'000'000);
    if (store.list().at(0).bytes != 1'000'000'000) return;
    (void)::raise(SIGKILL);
  };
  (void)testing::status_of_child([&] { return store.get_or_build("a", killed).built; });
  const auto report = prune(store, {});
  REQUIRE(report.removed.size() == 1);
  CHECK(report.removed.at(0).state == ArtefactState::stale_claim);
  CHECK(report.bytes < 1000);
}

TEST_CASE_FIXTURE(InStore, "a source is known by its absolute path") {
  CHECK(store.get_or_build("a", writes("x"), {.source = "no/such/file"}).source == fs::current_path() / "no/such/file");
}

TEST_CASE_FIXTURE(InStore, "an old artefact is flushed by the next who asks, and counts for good") {
  CHECK(store.get_or_build("a", writes("content"), {.durable = false}).built);
  const auto description = [&] { return *store::read_about(files_of("a").about); };
  auto before = description();
  CHECK(before.boot == store::boot_to_record(opened()));
  if (before.boot.empty()) SKIP_CASE("the kernel reports no boot");
  before.created_ns -= 60'000'000'000;
  store::write_about(files_of("a").about, before);
  {
    const auto claim = store::Claim::take(files_of("a").claim, "a");
    CHECK(store.find("a"));  // another thread has claimed it: it is unchanged
    CHECK(count(ArtefactState::ready) == 1);
    CHECK(description() == before);
  }
  auto replaced = before;
  ++replaced.created_ns;
  const auto artefact = store::open_as_built(before, files_of("a").artefact);
  CHECK(store::settle_if_old(files_of("a"), replaced, artefact));  // it has been built again meanwhile
  CHECK(description() == before);
  CHECK(store.find("a"));
  before.boot.clear();
  CHECK(description() == before);
  CHECK(store.list().front().reason == "ready");
  CHECK(std::distance(fs::directory_iterator(store.folder()), {}) == 2);
}

TEST_CASE_FIXTURE(InFolder, "a store has the first name that nobody else has, and says why it is not the usual one") {
  for (const char* name : {"store", "store-1"}) {
    fs::create_directory(folder / name);
    fs::permissions(folder / name, fs::perms::all);
  }
  const auto [path, obstacle] = store::choose_name(folder / "store");
  CHECK(path == folder / "store-2");
  CHECK(obstacle.starts_with((folder / "store").string() + ": other users have access"));
}

TEST_CASE("in memory no boot is recorded") {
  if (!fs::is_directory("/dev/shm")) SKIP_CASE("no /dev/shm");
  const fs::path path = "/dev/shm/onecopy-test-of-boots-" + std::to_string(os::process_id());
  const auto folder = store::Folder::open(path);
  const auto system = os::file_system_of(folder.descriptor());
  if (system && system.value.storage == os::Storage::memory) CHECK(store::boot_to_record(folder).empty());
  fs::remove(path);
}

TEST_CASE_FIXTURE(InStore, "a file that was fetched in part is listed with its key, and goes if an option selects it") {
  const auto files = files_of("a url");
  write_text(files.partial.path(), std::string(10000, 'x'));
  fs::resize_file(files.partial.path(), 1 << 20);  // the rest is a hole
  write_text(files.pieces.path(), "a url\nboot\n");
  fs::create_directory(store.folder() / store::views_folder);
  REQUIRE(store.list().size() == 1);
  auto listed = store.list().at(0);
  CHECK(listed.state == ArtefactState::partial);
  CHECK(listed.key == "a url");
  CHECK(listed.path == files.partial.path());
  CHECK(listed.bytes < 1 << 20);
  CHECK_FALSE(store.find("a url"));
  CHECK(prune(store, {}).removed.empty());
  const PruneOptions options{.keys = {"a url"}};
  {
    const auto claimed = store::Claim::take(files.claim, "a url");
    REQUIRE(claimed);
    CHECK(store.list().at(0).state == ArtefactState::building);
    CHECK(prune(store, options).removed.empty());
  }
  --listed.last_used_ns;
  CHECK(!store::remove(opened(), listed).empty());  // it was used since
  CHECK(prune(store, options).removed.size() == 1);
  write_text(files.pieces.path(), "");  // alone
  CHECK(prune(store, {.everything = true}).removed.size() == 1);
  CHECK(std::distance(fs::directory_iterator(store.folder()), {}) == 1);
}

}  // namespace onecopy
