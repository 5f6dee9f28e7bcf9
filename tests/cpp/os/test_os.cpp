#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <numeric>

#include "back_end.hpp"
#include "children.hpp"
#include "os/os.hpp"
#include "precompiled.hpp"
#include "scratch_folder.hpp"

namespace onecopy::os {

using std::chrono::milliseconds;

TEST_CASE_FIXTURE(InFolder, "reading stops at the end of the file and says how much there was") {
  const auto path = folder.write("data", testing::random_bytes(9000)).string();
  const auto fd = open_read(path);
  REQUIRE(fd);
  std::vector<std::byte> into(200);
  for (const auto& [at, expected] : {std::pair(8960, 40), {9000, 0}, {1'000'000, 0}})
    CHECK(read_at(fd.value.get(), into, static_cast<std::uint64_t>(at)).value == static_cast<std::size_t>(expected));
  // A small text file is read whole, a large one up to 8 KiB, and a missing one is empty.
  CHECK(read_text(path).size() == 8192);
  std::filesystem::resize_file(path, 5);
  CHECK(read_text(path).size() == 5);
  CHECK(read_text(path + "none").empty());
  CHECK(read_text(folder.path().string()).empty());
}

TEST_CASE_FIXTURE(InFolder, "a missing file, a folder and a FIFO are distinguished without waiting") {
  CHECK(open_read((folder / "missing").string()).error == ENOENT);
  CHECK(facts_of(folder.path().string()).value.kind == FileKind::folder);
  const auto fifo = (folder / "fifo").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const auto fd = open_read(fifo);
  REQUIRE(fd);
  CHECK(facts_of(fd.value.get()).value.kind == FileKind::other);
}

TEST_CASE_FIXTURE(InFolder, "a claim is of the open file: the same process is refused through another, and can ask") {
  const auto path = (folder / "claim").string();
  auto first = open_or_create(path);
  const auto second = open_existing(path);
  REQUIRE(first);
  REQUIRE(second);
  CHECK_FALSE(is_claimed(second.value.get()).value);
  CHECK(try_claim(first.value.get()) == 0);
  CHECK(try_claim(second.value.get()) == EAGAIN);
  CHECK(is_claimed(second.value.get()).value);
  (void)open_read(path);  // and closed: what would give a lock of the process away
  CHECK(is_claimed(second.value.get()).value);
  first.value = Fd();
  CHECK_FALSE(is_claimed(second.value.get()).value);
  CHECK(try_claim(second.value.get()) == 0);
}

TEST_CASE_FIXTURE(InFolder, "a lock is released by the death of its owner") {
  const auto fd = open_read(folder.write("lock", testing::random_bytes(1)).string());
  testing::Child child([&] {
    static const auto own = open_read((folder / "lock").string());
    return try_lock(own.value.get()) == 0;
  });
  CHECK(child.said() == 1);
  CHECK(try_lock(fd.value.get()) == EAGAIN);
  child.kill();
  CHECK(try_lock(fd.value.get()) == 0);
}

TEST_CASE_FIXTURE(InFolder, "functions that do not follow a symbolic link report it") {
  folder.write("file", testing::random_bytes(3));
  std::filesystem::create_symlink("file", folder / "link");
  const auto link = (folder / "link").string();
  CHECK(open_read(link));
  for (const auto open : {open_no_link, open_or_create, open_existing}) CHECK(open(link).error == ELOOP);
  CHECK(facts_of(link).value.kind == FileKind::regular);
  CHECK(facts_of_entry(link).value.kind == FileKind::link);
  CHECK(facts_of_entry((folder / "file").string()).value.owner == user_id());
  CHECK(open_existing((folder / "none").string()).error == ENOENT);
}

TEST_CASE_FIXTURE(InFolder, "moving a descriptor leaves one owner") {
  const auto path = folder.write("data", testing::random_bytes(1)).string();
  auto first = std::move(open_read(path).value);
  const int number = first.get();
  Fd second(std::move(first));
  CHECK(!first);  // NOLINT(bugprone-use-after-move): that it is empty is the point
  CHECK(second.get() == number);
  second = std::move(open_read(path).value);
  CHECK(::fcntl(number, F_GETFD) == -1);  // closed by the assignment
}

TEST_CASE_FIXTURE(InFolder, "no descriptor passes into another program") {
  const auto path = folder.write("data", testing::random_bytes(1)).string();
  std::vector<Result<Fd>> all;
  for (const auto& open : {open_read, open_no_link, open_or_create, open_existing}) all.push_back(open(path));
  all.push_back(create_named(path + "2"));
  all.push_back(open_folder(folder.path().string()));
  all.push_back(create_unnamed(all.back().value.get()));
  const int fd = all.front().value.get();
  for (const auto& open : {reopen_read, reopen_direct, reopen_direct_writable}) all.push_back(open(fd));
  all.push_back(duplicate(fd));
  all.push_back(create_sealable("data"));
  all.push_back(claim_name("onecopy test " + path));
  for (const auto& open : {open_memory, open_page_map}) all.push_back(open(process_id()));
  for (const auto& made : all)
    if (made) CHECK((::fcntl(made.value.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(is_owned(fd) == testing::on_linux);
  const auto again = open_read(path);
  CHECK(::fcntl(fd, F_GETFL) == ::fcntl(again.value.get(), F_GETFL));  // which was not asked for its owner
}

TEST_CASE_FIXTURE(InFolder, "a folder has the permissions that were asked for, and keeps the group of the one above") {
  REQUIRE(::chmod(folder.path().c_str(), 02770) == 0);
  const auto path = (folder / "new").string();
  const auto umask_before = ::umask(077);
  CHECK(create_folder(path, 0750) == 0);
  ::umask(umask_before);
  CHECK((facts_of(path).value.permissions & ~02000U) == 0750);
  if (testing::on_linux) CHECK(facts_of(path).value.permissions == 02750);
}

TEST_CASE("the mapped pages of many ranges are all counted" * testing::linux_only()) {
  constexpr std::size_t ranges = 600;  // of a page each; the kernel reports 256 at a time
  const auto at = reserve_addresses(2 * ranges * page_size());
  REQUIRE(at);
  REQUIRE(map_heap_at(at.value, 2 * ranges * page_size(), Access::write) == 0);
  for (std::size_t i = 0; i < ranges; ++i) at.value[2 * i * page_size()] = std::byte{1};
  if (const auto here = mapped_here({at.value, 2 * ranges * page_size()}))
    CHECK(here.value.mapped == ranges * page_size());
  unmap(at.value, 2 * ranges * page_size());
}

TEST_CASE_FIXTURE(InFolder, "what is written through a shared mapping is in the file, and its time can be put back") {
  const auto fd = open_or_create((folder / "data").string());
  REQUIRE(fd);
  const std::size_t size = 2 * page_size();
  REQUIRE(set_size(fd.value.get(), size) == 0);
  const auto at = reserve_addresses(2 * size);
  REQUIRE(at);
  CHECK(at.value[2 * size - 1] == std::byte{0});
  unmap(at.value + size, size);  // a part is given back
  REQUIRE(map_shared_at(at.value, size, fd.value.get(), 0) == 0);
  at.value[size - 1] = std::byte{7};
  CHECK(sync_memory({at.value, size}) == 0);
  CHECK(write_out(fd.value.get(), {0, size}) == 0);
  std::vector<std::byte> into(1);
  CHECK(read_at(fd.value.get(), into, size - 1).value == 1);
  CHECK(into[0] == std::byte{7});
  if (const auto shared = shared_here({at.value, size})) CHECK(shared.value == 0);
  unmap(at.value, size);
  for (const std::int64_t time : {1'234'567'890'123'456'789, std::int64_t{0}, std::int64_t{-1'500'000'000}}) {
    CHECK(set_written(fd.value.get(), time) == 0);
    CHECK(facts_of(fd.value.get()).value.mtime_ns == time);
  }
  CHECK(free_space(fd.value.get()).value > 0);
  CHECK(set_size(-1, 0) == EBADF);
  CHECK(write_out(-1, {0, 0}) == EBADF);
}

TEST_CASE("the time that a thread waits for the CPU of another is known" * testing::linux_only()) {
  const auto before = cpu_wait_of_thread();
  const auto end = std::chrono::steady_clock::now() + milliseconds(200);
  std::vector<std::uint64_t> waited(2 * std::size_t{std::thread::hardware_concurrency()} + 2);
  std::vector<std::jthread> threads;
  for (auto& mine : waited) {
    threads.emplace_back([&] {
      while (std::chrono::steady_clock::now() < end) continue;
      mine = cpu_wait_of_thread();
    });
  }
  threads.clear();
  const auto sum = std::accumulate(waited.begin(), waited.end(), std::uint64_t{0});
  if (sum == 0) SKIP_CASE("this kernel does not count how long threads wait for a CPU");
  CHECK(sum > 50'000'000);
  CHECK(cpu_wait_of_thread() >= before);
}

TEST_CASE("a process that waits for a name goes on when the holder releases it, and otherwise after the time" *
          testing::linux_only()) {
  const std::string name = "onecopy test " + std::to_string(::getpid());
  auto held = claim_name(name);
  REQUIRE(held);
  CHECK(claim_name(name).error == EADDRINUSE);
  const auto start = std::chrono::steady_clock::now();
  wait_for_name(name, milliseconds(20));
  CHECK(std::chrono::steady_clock::now() - start >= milliseconds(20));
  std::vector<std::jthread> threads;
  std::atomic<int> gone_on{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      wait_for_name(name, std::chrono::hours(1));
      ++gone_on;
    });
  }
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(gone_on == 0);
  held.value = {};
  threads.clear();
  CHECK(gone_on == 4);
  CHECK(claim_name(name));
}

}  // namespace onecopy::os
