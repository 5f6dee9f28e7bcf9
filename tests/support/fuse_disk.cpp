// A read-only FUSE file system that shows the files of one folder, and delays, fails, shortens or holds back reads as a
// block of shared memory says, in which it counts them. Many threads serve, so that requests wait side by side.
//
//   fuse_disk SOURCE MOUNT CONTROL_DESCRIPTOR REQUEST_BYTES OPEN_FLAGS SECONDS_VALID READ_ONLY LIFETIME
//
// It prints a line when it is mounted, and ends when its parent, its file system or its lifetime does: the kernel then
// aborts all requests, so that no process waits for longer.
#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace {

// tests/support/fuse_disk.py has the same fields.
struct Control {
  double seconds;           // of delay before each READ is answered
  std::uint64_t fail_from;  // a READ that touches [fail_from, fail_to) gets `error`
  std::uint64_t fail_to;
  std::int64_t error;
  std::uint64_t at_once;    // bytes that one READ gives at most, although the file goes on
  std::uint64_t size;       // bytes that each file has, at most: the rest is cut off
  std::uint64_t hangs;      // not 0: READs wait until it is 0 again
  std::uint64_t reads;      // counted: READs that were answered
  std::uint64_t bytes;      // counted: their bytes
  std::uint64_t in_flight;  // READs that wait now
  std::uint64_t most_in_flight;
};

struct Served {
  std::string name;
  int descriptor;
};

Control* control = nullptr;
std::vector<Served> files;  // inode 2 + i
std::size_t request_bytes = 0;
unsigned open_flags = 0;
double seconds_valid = 0;

template <class T>
std::atomic_ref<T> shared(T& value) {
  return std::atomic_ref<T>(value);
}

bool attributes(fuse_ino_t inode, struct stat& facts) {
  facts = {};
  facts.st_ino = inode;
  facts.st_uid = getuid();
  facts.st_gid = getgid();
  if (inode == FUSE_ROOT_ID) {
    facts.st_mode = S_IFDIR | 0755;
    facts.st_nlink = 2;
    return true;
  }
  if (inode - 2 >= files.size()) return false;
  struct stat source{};
  if (fstat(files[inode - 2].descriptor, &source) != 0) return false;
  facts.st_mtim = facts.st_atim = facts.st_ctim = source.st_mtim;  // a server has one clock of its own
  facts.st_mode = S_IFREG | 0644;
  facts.st_nlink = 1;
  facts.st_size = static_cast<off_t>(std::min<std::uint64_t>(source.st_size, shared(control->size).load()));
  facts.st_blocks = (facts.st_size + 511) / 512;
  return true;
}

void initialise(void*, fuse_conn_info* connection) {
  connection->max_write = static_cast<unsigned>(request_bytes);  // the pages of a request, of reads too
  connection->max_read = static_cast<unsigned>(request_bytes);
}

void look_up(fuse_req_t request, fuse_ino_t, const char* name) {
  const auto found = std::ranges::find(files, name, &Served::name);
  fuse_entry_param entry{};
  entry.ino = 2 + static_cast<fuse_ino_t>(found - files.begin());
  entry.entry_timeout = 60;
  entry.attr_timeout = seconds_valid;
  if (found == files.end() || !attributes(entry.ino, entry.attr))
    fuse_reply_err(request, ENOENT);
  else
    fuse_reply_entry(request, &entry);
}

void get_attributes(fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
  struct stat facts{};
  if (attributes(inode, facts))
    fuse_reply_attr(request, &facts, seconds_valid);
  else
    fuse_reply_err(request, ENOENT);
}

void open_file(fuse_req_t request, fuse_ino_t, fuse_file_info* opened) {
  opened->direct_io = (open_flags & 1U) != 0;
  opened->keep_cache = (open_flags & 2U) != 0;
  fuse_reply_open(request, opened);
}

void read_file(fuse_req_t request, fuse_ino_t inode, std::size_t asked, off_t position, fuse_file_info*) {
  const auto now = shared(control->in_flight).fetch_add(1) + 1;
  auto most = shared(control->most_in_flight).load();
  while (now > most && !shared(control->most_in_flight).compare_exchange_weak(most, now)) {
  }
  std::this_thread::sleep_for(std::chrono::duration<double>(shared(control->seconds).load()));
  while (shared(control->hangs).load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto offset = static_cast<std::uint64_t>(position);
  const auto size = shared(control->size).load();
  const auto length =
      std::min({static_cast<std::uint64_t>(asked), shared(control->at_once).load(), size - std::min(size, offset)});
  shared(control->in_flight).fetch_sub(1);
  if (offset < shared(control->fail_to).load() && shared(control->fail_from).load() < offset + asked) {
    fuse_reply_err(request, static_cast<int>(shared(control->error).load()));
    return;
  }
  thread_local std::vector<char> buffer;
  buffer.resize(length);
  const auto got = pread(files[inode - 2].descriptor, buffer.data(), length, position);
  if (got < 0) {
    fuse_reply_err(request, errno);
    return;
  }
  shared(control->reads).fetch_add(1);
  shared(control->bytes).fetch_add(static_cast<std::uint64_t>(got));
  fuse_reply_buf(request, buffer.data(), static_cast<std::size_t>(got));
}

void list_folder(fuse_req_t request, fuse_ino_t, std::size_t size, off_t from, fuse_file_info*) {
  std::vector<char> entries(size);
  std::size_t used = 0;
  for (auto i = static_cast<std::size_t>(from); i < files.size(); ++i) {
    struct stat facts{};
    if (!attributes(2 + i, facts)) continue;
    const auto room = size - used;
    const auto takes = fuse_add_direntry(request, entries.data() + used, room, files[i].name.c_str(), &facts,
                                         static_cast<off_t>(i + 1));
    if (takes > room) break;
    used += takes;
  }
  fuse_reply_buf(request, entries.data(), used);
}

fuse_lowlevel_ops operations() {
  fuse_lowlevel_ops table{};
  table.init = initialise;
  table.lookup = look_up;
  table.getattr = get_attributes;
  table.open = open_file;
  table.read = read_file;
  table.readdir = list_folder;
  // A new file is refused here; the kernel itself refuses all changes on a file system that is mounted read-only.
  table.create = [](auto request, auto...) { fuse_reply_err(request, EROFS); };
  table.mknod = [](auto request, auto...) { fuse_reply_err(request, EROFS); };
  return table;
}

}  // namespace

int main(int count, char** words) {
  if (count != 9) return 2;
  const std::filesystem::path source = words[1];
  void* memory = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, std::atoi(words[3]), 0);
  if (memory == MAP_FAILED) return 2;
  control = static_cast<Control*>(memory);
  request_bytes = std::strtoull(words[4], nullptr, 10);
  open_flags = static_cast<unsigned>(std::atoi(words[5]));
  seconds_valid = std::atof(words[6]);
  for (const auto& entry : std::filesystem::directory_iterator(source))
    files.push_back({entry.path().filename().string(), open(entry.path().c_str(), O_RDONLY | O_CLOEXEC)});
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(static_cast<unsigned>(std::atoi(words[8])));

  std::string options = "allow_other,max_read=" + std::to_string(request_bytes) + (words[7][0] == '1' ? ",ro" : "");
  std::string program = "fuse_disk";
  std::string flag = "-o";
  std::array<char*, 3> texts{program.data(), flag.data(), options.data()};
  fuse_args arguments = FUSE_ARGS_INIT(3, texts.data());
  const auto table = operations();
  fuse_session* session = fuse_session_new(&arguments, &table, sizeof(table), nullptr);
  if (session == nullptr || fuse_session_mount(session, words[2]) != 0) return 1;
  std::puts("mounted");
  std::fflush(stdout);
  fuse_loop_config* loop = fuse_loop_cfg_create();
  fuse_loop_cfg_set_clone_fd(loop, 1);
  fuse_loop_cfg_set_max_threads(loop, 512);
  fuse_loop_cfg_set_idle_threads(loop, 512);
  return fuse_session_loop_mt(session, loop) == 0 ? 0 : 1;
}
