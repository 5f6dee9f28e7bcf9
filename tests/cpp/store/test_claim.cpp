#include <sys/mman.h>

#include <chrono>

#include "children.hpp"
#include "onecopy/store/store.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"
#include "store/claim.hpp"
#include "store/names.hpp"

namespace onecopy::store {
namespace {

using testing::Child;

File file_in(const testing::ScratchFolder& folder, const std::string& name) {
  return {Folder::open(folder.path()), name};
}

struct WithClaim : InFolder {
  const File file = file_in(folder, "a.claim");
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

TEST_CASE_FIXTURE(WithClaim, "only the claims of a thread that waits say for what") {
  const auto claim = Claim::take(file, "a");
  const std::string digest(32, 'd');
  std::thread([&] {
    const File other = file_in(folder, "b.claim");
    const auto theirs = Claim::take(other, "b");
    tell_wait(digest);
    CHECK(look_at_claim(other)->holder.waits_for == digest);
    CHECK(look_at_claim(file)->holder.waits_for.empty());
  }).join();
}

TEST_CASE_FIXTURE(WithClaim, "a claim records its holder, its key, and the progress of the build") {
  CHECK_FALSE(look_at_claim(file));
  const auto claim = Claim::take(file, "the key");
  report_progress(12345);
  std::thread([] { report_progress(77); }).join();  // which builds nothing
  const File of_inner = file_in(folder, "b.claim");
  const auto inner = Claim::take(of_inner, "inner");
  report_progress(5);
  CHECK(look_at_claim(of_inner)->holder.bytes == 5);
  const auto facts = look_at_claim(file);
  REQUIRE(facts);
  CHECK(facts->held);
  CHECK(facts->holder.process == os::process_id());
  CHECK(facts->holder.bytes == 12345);
  CHECK(facts->holder.key == "the key");
  CHECK(facts->holder.since_ns > 1'600'000'000'000'000'000);
}

TEST_CASE_FIXTURE(InFolder,
                  "a folder is claimed by one at a time, without a file, and a forked child does not keep the claim") {
  const auto claimed = file_in(folder, "unused").folder;
  auto claim = Claim::take(claimed);
  REQUIRE(claim);
  CHECK_FALSE(Claim::take(claimed));
  const Child child([&] { return claim->is_inherited() && !Claim::take(claimed); });
  CHECK(child.said());
  claim.reset();
  CHECK(Claim::take(claimed));  // and the child lives
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
  REQUIRE(child.said());
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
  CHECK(child.said());
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
  CHECK(child.said());
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
  const auto is_ours_elsewhere = [&] { return Claim::is_ours(file); };
  CHECK(testing::status_of_child(is_ours_elsewhere) == 0);
  // The same inode, as after the parent's end, with what another process would have written into it.
  const auto fd = os::open_existing(file.at());
  const std::string other =
      "                 999                  999                    0                                -\na";
  REQUIRE(os::write_at(fd.value.get(), std::as_bytes(std::span(other)), 0));
  CHECK(testing::status_of_child(is_ours_elsewhere) != 0);
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
  const auto in_two_threads = [&] {
    std::thread other(work);
    work();
    other.join();
    return true;
  };
  CHECK(testing::statuses_of_children(3, in_two_threads) == std::vector<int>(3));
  CHECK(seen->together == 0);
  CHECK(folder.file_count() == 0);
  ::munmap(memory, sizeof(Seen));
}

}  // namespace onecopy::store
