#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"
#include "store/claim.hpp"
#include "store/names.hpp"

namespace onecopy::store {
namespace {

File file_in(const testing::ScratchFolder& folder, const std::string& name) {
  return {Folder::open(folder.path()), name};
}

struct WithClaim : InFolder {
  const File file = file_in(folder, "a.claim");
};

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

TEST_CASE_FIXTURE(WithClaim, "a claim is one thread's alone, and the file goes with it") {
  {
    const auto claim = Claim::take(file, "a");
    REQUIRE(claim);
    CHECK_FALSE(claim->is_inherited());
    CHECK(Claim::is_ours(file));
    CHECK_FALSE(Claim::is_ours(file_in(folder, "b.claim")));
    CHECK_FALSE(Claim::take(file, "a"));
    std::thread([&] {
      CHECK_FALSE(Claim::is_ours(file));
      CHECK_FALSE(Claim::take(file, "a"));
    }).join();
    CHECK(Claim::take(file_in(folder, "b.claim"), "b"));
  }
  CHECK(folder.file_count() == 0);
  CHECK(Claim::take(file, "a"));
}

TEST_CASE_FIXTURE(WithClaim, "a claim records its holder, its key, and the progress of the build") {
  CHECK_FALSE(look_at_claim(file));
  const auto claim = Claim::take(file, "the key");
  report_progress(12345);
  const auto facts = look_at_claim(file);
  REQUIRE(facts);
  CHECK(facts->held);
  CHECK(facts->holder.process == os::process_id());
  CHECK(facts->holder.bytes == 12345);
  CHECK(facts->holder.key == "the key");
  CHECK(facts->holder.since_ns > 1'600'000'000'000'000'000);
}

TEST_CASE_FIXTURE(WithClaim, "a thread that builds nothing reports no progress of another thread's build") {
  const auto claim = Claim::take(file, "a");
  report_progress(1000);
  std::thread([] { report_progress(77); }).join();
  CHECK(look_at_claim(file)->holder.bytes == 1000);
}

TEST_CASE_FIXTURE(InFolder,
                  "a folder is claimed by one at a time, without a file, and a forked child does not keep the claim") {
  const auto claimed = file_in(folder, "unused").folder;
  auto claim = Claim::take(claimed);
  REQUIRE(claim);
  CHECK_FALSE(Claim::take(claimed));
  const Child child([&] { return claim->is_inherited() && !Claim::take(claimed); });
  CHECK(child.said_yes());
  claim.reset();
  CHECK(Claim::take(claimed));  // and the child lives
  CHECK(folder.file_count() == 0);
}

TEST_CASE_FIXTURE(WithClaim, "the claim of a process that was killed is stale, and the next one takes it") {
  Child child([&] {
    static const auto claim = Claim::take(file, "a");
    return claim.has_value();
  });
  REQUIRE(child.said_yes());
  CHECK(look_at_claim(file)->held);
  CHECK_FALSE(Claim::take(file, "a"));
  child.kill();
  CHECK_FALSE(look_at_claim(file)->held);
  CHECK(Claim::take(file, "a"));
  CHECK(folder.file_count() == 0);
}

TEST_CASE_FIXTURE(InFolder, "of a builder that was killed no claim is waited for") {
  const auto opened = Folder::open(folder.path());
  const std::string ours(digest_length, 'a');
  const std::string theirs(digest_length, 'b');
  Child child([&] {
    static const auto claim = Claim::take(files_of(opened, theirs).claim, "b");
    tell_wait(ours);
    return claim.has_value();
  });
  REQUIRE(child.said_yes());
  const auto claim = Claim::take(files_of(opened, ours).claim, "a");
  Holder waiting;
  waiting.waits_for = theirs;
  CHECK(waits_for_us(opened, waiting));
  child.kill();
  CHECK_FALSE(waits_for_us(opened, waiting));
}

TEST_CASE_FIXTURE(WithClaim, "a forked child does not keep the claim of its parent") {
  auto claim = Claim::take(file, "a");
  const Child child(
      [&] { return claim->is_inherited() && Claim::is_ours(file); });  // to ask for it is to ask for oneself
  CHECK(child.said_yes());
  claim.reset();
  CHECK(Claim::take(file, "a"));  // and the child lives
}

TEST_CASE_FIXTURE(WithClaim, "a forked child that releases inherited claims takes nothing from its parent") {
  auto claim = Claim::take(file, "a");
  Child child([&] {
    report_progress(77);
    claim.reset();
    return !Claim::is_ours(file);
  });
  CHECK(child.said_yes());
  child.kill();
  CHECK(look_at_claim(file)->held);
  CHECK(look_at_claim(file)->holder.bytes == 77);
  CHECK(look_at_claim(file)->holder.process == os::process_id());
}

TEST_CASE_FIXTURE(WithClaim, "releasing a claim whose file was removed leaves the file of the next claim") {
  auto first = Claim::take(file, "a");
  std::filesystem::remove(file.path());
  const auto second = Claim::take(file, "a");
  REQUIRE(second);
  first.reset();
  CHECK(look_at_claim(file)->held);
  CHECK_FALSE(Claim::take(file, "a"));
}

TEST_CASE_FIXTURE(WithClaim, "a forked child does not take the claim of a third one for its parent's") {
  auto claim = Claim::take(file, "a");
  std::array<int, 2> go{};
  REQUIRE(::pipe(go.data()) == 0);
  std::array<int, 2> answer{};
  REQUIRE(::pipe(answer.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    (void)!::read(go[0], &byte, 1);
    byte = Claim::is_ours(file) ? 'y' : 'n';
    (void)!::write(answer[1], &byte, 1);
    ::_exit(0);
  }
  // The same inode, as after the parent's end, with what another process would have written into it.
  {
    const auto fd = os::open_existing(file.at());
    const std::string other =
        "                 999                  999                    0                                -\na";
    REQUIRE(os::write_at(fd.value.get(), std::as_bytes(std::span(other)), 0));
  }
  (void)!::write(go[1], "g", 1);
  char said = 0;
  (void)!::read(answer[0], &said, 1);
  ::waitpid(child, nullptr, 0);
  CHECK(said == 'n');
  for (const int fd : {go[0], go[1], answer[0], answer[1]}) ::close(fd);
}

TEST_CASE("of many processes and threads that take and release one claim, one has it at a time") {
  struct Seen {
    std::atomic<int> inside;  // the claim is its lock
    std::atomic<int> together;
  };
  void* const memory = ::mmap(nullptr, sizeof(Seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* const seen = new (memory) Seen{};  // NOLINT(cppcoreguidelines-owning-memory): unmapped below
  const testing::ScratchFolder folder;
  const auto file = file_in(folder, "a.claim");
  const auto work = [&]() noexcept {
    for (int taken = 0; taken < 50;) {
      const auto claim = Claim::take(file, "a");
      if (!claim) continue;
      if (++seen->inside != 1) ++seen->together;
      std::this_thread::sleep_for(std::chrono::microseconds(50));  // the others ask meanwhile
      --seen->inside;
      ++taken;
    }
  };
  std::array<pid_t, 3> children{};
  for (pid_t& child : children) {
    child = ::fork();
    if (child != 0) continue;
    std::thread other(work);
    work();
    other.join();
    ::_exit(0);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }
  CHECK(seen->together == 0);
  CHECK(folder.file_count() == 0);
  ::munmap(memory, sizeof(Seen));
}

}  // namespace onecopy::store
