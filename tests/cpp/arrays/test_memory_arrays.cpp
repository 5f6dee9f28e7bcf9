#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <set>

#include "memory_files.hpp"
#include "onecopy/arrays/array_file.hpp"
#include "onecopy/arrays/array_writer.hpp"
#include "onecopy/arrays/verify.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/memory_file_writer.hpp"
#include "onecopy/page_cache/page_cache.hpp"
#include "onecopy/page_cache/warm.hpp"
#include "os/os.hpp"
#include "scratch_folder.hpp"

namespace onecopy {
namespace {

constexpr std::size_t array_size = std::size_t{5} << 20U;

ArrayFile shared_arrays() {
  const auto a = testing::random_bytes(array_size, 1);
  const auto b = testing::random_bytes(1000, 2);
  const std::array arrays{NamedArray{{"a", DType::u8, {a.size()}}, a}, NamedArray{{"b", DType::i16, {500}}, b}};
  return save_to_memory("weights", arrays);
}

void check_arrays(const ArrayFile& file) {
  CHECK(testing::same_bytes(file.bytes("a"), testing::random_bytes(array_size, 1)));
  CHECK(testing::same_bytes(file.bytes("b"), testing::random_bytes(1000, 2)));
  CHECK(verify(file).bytes > array_size);
}

// What a process that died might have left behind.
std::set<std::string> leftovers() {
  std::set<std::string> names;
  for (const auto& folder : {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
      if (entry.path().filename().string().starts_with(".onecopy-")) names.insert(entry.path().string());
  }
  return names;
}

void send_byte(int socket) { REQUIRE(::send(socket, "x", 1, MSG_NOSIGNAL) == 1); }

bool receive_byte(int socket) {
  char byte = 0;
  return ::recv(socket, &byte, 1, 0) == 1;
}

// SCM_RIGHTS, as unix(7) has it.
union Control {
  cmsghdr header;
  std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

void send_descriptor(int socket, int fd) {
  char byte = 'x';
  iovec data{&byte, 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) == 1);
}

os::Fd receive_descriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  REQUIRE(::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  REQUIRE(header != nullptr);
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return os::Fd(fd);
}

// A process of its own: this program again, in the case "reader" below. It says when it has opened the file, and ends
// when it has looked once more.
constexpr int reader_socket = 3;
constexpr int inherited = 4;

struct Process {
  pid_t pid = -1;
  os::Fd socket;

  int status() {
    int status = -1;
    ::waitpid(pid, &status, 0);
    return status;
  }
};

Process start_reader(const std::string& source, int fd) {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    // Out of the way of the two numbers first; dup2 makes descriptors that exec keeps.
    const int socket = ::fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
    const int file = fd >= 0 ? ::fcntl(fd, F_DUPFD_CLOEXEC, 10) : -1;
    ::dup2(socket, reader_socket);
    if (file >= 0) ::dup2(file, inherited);
    ::setenv("ONECOPY_TEST_SOURCE", source.c_str(), 1);
    ::execl("/proc/self/exe", "reader", "--no-skip", "--test-case=reader", "--minimal", nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  return {pid, os::Fd(ends[0])};
}

ArrayFile open_source(const std::string& source) {
  if (source == "inherited") return ArrayFile::from_descriptor(inherited, "inherited");
  if (source == "received") return ArrayFile::from_descriptor(receive_descriptor(reader_socket).get(), "received");
  return ArrayFile::open(source);
}

}  // namespace

TEST_CASE("reader" * doctest::skip() * doctest::description("run by another case, in a process of its own")) {
  const char* source = std::getenv("ONECOPY_TEST_SOURCE");
  REQUIRE(source != nullptr);
  const auto file = open_source(source);
  check_arrays(file);
  CHECK(file.mapping()->sealed() == testing::has_memory_files());
  send_byte(reader_socket);
  CHECK(receive_byte(reader_socket));
  check_arrays(file);
}

TEST_CASE("arrays in memory are opened by another process through its inherited descriptor, a socket, and a path") {
  const auto file = shared_arrays();
  const int fd = file.mapping()->descriptor();
  const std::string path = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd);
  for (const auto& source : {std::string("inherited"), std::string("received"), path}) {
    CAPTURE(source);
    auto reader = start_reader(source, source == "inherited" ? fd : -1);
    if (source == "received") send_descriptor(reader.socket.get(), fd);
    CHECK(receive_byte(reader.socket.get()));
    send_byte(reader.socket.get());
    CHECK(reader.status() == 0);
  }
}

TEST_CASE("memory shared by a killed process lives while a process maps it, and nothing is left behind") {
  const auto before = leftovers();
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const pid_t creator = ::fork();
  if (creator == 0) {
    const auto file = shared_arrays();
    send_descriptor(ends[1], file.mapping()->descriptor());
    for (;;) ::pause();
  }
  ::close(ends[1]);
  const os::Fd socket(ends[0]);
  auto reader = start_reader("received", -1);
  send_descriptor(reader.socket.get(), receive_descriptor(socket.get()).get());
  CHECK(receive_byte(reader.socket.get()));  // opened
  ::kill(creator, SIGKILL);
  ::waitpid(creator, nullptr, 0);
  send_byte(reader.socket.get());
  CHECK(reader.status() == 0);
  CHECK(leftovers() == before);
}

TEST_CASE("a process that is killed while it fills a memory file leaves nothing") {
  const auto before = leftovers();
  const pid_t creator = ::fork();
  if (creator == 0) {
    MemoryFileWriter writer("half", 40'000'000);
    writer.write(testing::random_bytes(20'000'000));
    ::raise(SIGKILL);
  }
  int status = 0;
  ::waitpid(creator, &status, 0);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK(leftovers() == before);
}

TEST_CASE("what is asked of a memory file is answered with sense") {
  const auto file = shared_arrays();
  const Mapping& mapping = *file.mapping();
  check_arrays(file);
  const auto answer = residency(mapping);
  if (answer.cached) CHECK(*answer.cached == answer.bytes);
  const auto warmed = warm(mapping);
  CHECK(warmed.complete);
  if (testing::has_memory_files()) {
    CHECK(answer.dirty.value_or(0) == 0);  // there is no disk that lacks it
    const auto evicted = evict(mapping);
    CHECK(evicted.cached_after == evicted.cached_before);
    CHECK(evicted.reason.find("in memory only") != std::string::npos);
  }
  CHECK(!pin(mapping).reason.empty());
  unpin(mapping);
  check_arrays(file);
  CHECK(!mapping.changed());
}

TEST_CASE("a layout is written into a file of the caller's choice, and a wrong one is an error") {
  const auto bytes = testing::random_bytes(100);
  auto layout = Layout::plan({{"a", DType::u8, {100}}}, {});
  MemoryFileWriter memory("arrays", layout.file_size() + 1);
  ArrayWriter writer(memory, std::move(layout));
  writer.write(bytes);
  CHECK_THROWS_AS(writer.commit(), OsError);
  const std::array wrong{NamedArray{{"a", DType::u8, {99}}, bytes}};
  CHECK_THROWS_AS((void)save_to_memory("wrong", wrong), FormatError);
  const auto none = save_to_memory("none", {});
  CHECK(none.index().entries().empty());
}

TEST_CASE("a descriptor that leads to no arrays is an error with the name that was given") {
  const testing::ScratchFolder folder;
  const auto fd = os::open_read(folder.write("broken", testing::random_bytes(1000)).string());
  CHECK_THROWS_AS((void)ArrayFile::from_descriptor(-1, "nothing"), OsError);
  try {
    (void)ArrayFile::from_descriptor(fd.value.get(), "the weights");
    FAIL("opened");
  } catch (const FormatError& error) {
    CHECK(std::string(error.what()).starts_with("the weights: "));
  }
}

}  // namespace onecopy
