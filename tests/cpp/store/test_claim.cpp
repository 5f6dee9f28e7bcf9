#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "onecopy/base/error.hpp"
#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "scratch_folder.hpp"
#include "store/claim.hpp"

namespace onecopy::store {
namespace {

// A child that says on a pipe when it has come somewhere, and then waits to be killed.
class Child {
 public:
  template <class Work>
  explicit Child(const Work& work) {
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const char said = work() ? 'y' : 'n';
      (void)!::write(pipe[1], &said, 1);
      for (;;) ::pause();
    }
    (void)!::read(pipe[0], &said_, 1);
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  bool said_yes() const { return said_ == 'y'; }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  char said_ = 0;
};

}  // namespace

TEST_CASE("a claim is one thread's alone, and the file goes with it") {
  const testing::ScratchFolder folder;
  const auto path = folder / "a.claim";
  {
    const auto claim = Claim::take(path, "a");
    REQUIRE(claim);
    CHECK_FALSE(claim->is_inherited());
    CHECK(Claim::is_ours(path));
    CHECK_FALSE(Claim::is_ours(folder / "b.claim"));
    CHECK_FALSE(Claim::take(path, "a"));
    std::thread([&] {
      CHECK_FALSE(Claim::is_ours(path));
      CHECK_FALSE(Claim::take(path, "a"));
    }).join();
    CHECK(Claim::take(folder / "b.claim", "b"));
  }
  CHECK(folder.file_count() == 0);
  CHECK(Claim::take(path, "a"));
}

TEST_CASE("a claim says who holds it, for what, and how far he is") {
  const testing::ScratchFolder folder;
  const auto path = folder / "a.claim";
  CHECK_FALSE(look_at_claim(path));
  const auto claim = Claim::take(path, "the key");
  report_progress(12345);
  const auto facts = look_at_claim(path);
  REQUIRE(facts);
  CHECK(facts->held);
  CHECK(facts->holder.process == os::process_id());
  CHECK(facts->holder.bytes == 12345);
  CHECK(facts->holder.key == "the key");
  CHECK(facts->holder.since_ns > 1'600'000'000'000'000'000);
}

TEST_CASE("the claim of a process that was killed is stale, and the next one takes it") {
  const testing::ScratchFolder folder;
  const auto path = folder / "a.claim";
  Child child([&] {
    static const auto claim = Claim::take(path, "a");
    return claim.has_value();
  });
  REQUIRE(child.said_yes());
  CHECK(look_at_claim(path)->held);
  CHECK_FALSE(Claim::take(path, "a"));
  child.kill();
  CHECK_FALSE(look_at_claim(path)->held);
  CHECK(Claim::take(path, "a"));
  CHECK(folder.file_count() == 0);
}

TEST_CASE("a forked child does not keep the claim of its parent") {
  const testing::ScratchFolder folder;
  const auto path = folder / "a.claim";
  auto claim = Claim::take(path, "a");
  const Child child(
      [&] { return claim->is_inherited() && Claim::is_ours(path); });  // to ask for it is to ask for oneself
  CHECK(child.said_yes());
  claim.reset();
  CHECK(Claim::take(path, "a"));  // and the child lives
}

TEST_CASE("a forked child that lets go of what it inherited takes nothing from its parent") {
  const testing::ScratchFolder folder;
  const auto path = folder / "a.claim";
  auto claim = Claim::take(path, "a");
  Child child([&] {
    report_progress(77);
    claim.reset();
    return !Claim::is_ours(path);
  });
  CHECK(child.said_yes());
  child.kill();
  CHECK(look_at_claim(path)->held);
  CHECK(look_at_claim(path)->holder.bytes == 77);
  CHECK(look_at_claim(path)->holder.process == os::process_id());
}

TEST_CASE("who lets go of a claim whose file was removed leaves that of the next one") {
  const testing::ScratchFolder folder;
  const auto path = folder / "a.claim";
  auto first = Claim::take(path, "a");
  std::filesystem::remove(path);
  const auto second = Claim::take(path, "a");
  REQUIRE(second);
  first.reset();
  CHECK(look_at_claim(path)->held);
  CHECK_FALSE(Claim::take(path, "a"));
}

TEST_CASE("what stands in a claim's place is told, and stays") {
  const testing::ScratchFolder folder;
  std::filesystem::create_symlink("/dev/null", folder / "link");
  std::filesystem::create_directory(folder / "folder");
  REQUIRE(::mkfifo((folder / "fifo").c_str(), 0600) == 0);
  const auto code_of = [&](const char* name) {
    try {
      (void)Claim::take(folder / name, "");
    } catch (const OsError& error) {
      CHECK(error.path() == (folder / name).string());
      return error.code();
    }
    return 0;
  };
  CHECK(code_of("link") == ELOOP);
  CHECK(code_of("folder") == EISDIR);
  CHECK(code_of("fifo") == EEXIST);
  CHECK(folder.file_count() == 3);
}

TEST_CASE("of many threads that take and release one claim, one has it at a time") {
  const testing::ScratchFolder folder;
  const auto path = folder / "a.claim";
  int inside = 0;  // the claim is its lock
  int taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < 300; ++round) {
        const auto claim = Claim::take(path, "a");
        if (!claim) continue;
        CHECK(++inside == 1);
        ++taken;
        CHECK(--inside == 0);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(taken > 0);
  CHECK(folder.file_count() == 0);
}

}  // namespace onecopy::store
