// os: each function is one operation of the kernel and returns its result. No policy: the caller decides, and reports.
// A function may check or try more than its one call to keep the promise of its name: mincore is used only where it is
// truthful, and a claim is another kind of lock where the kernel has no locks of open files.
//
// A platform is a folder, not an #ifdef. The names below are the same on each; src/os/linux/ contains what Linux
// does better, src/os/posix/ everything else, and building with ONECOPY_OS=posix uses the portable half alone.
//
// Errors are errno values, never exceptions: the callers know path and intent and compose the message. Every function
// is safe to call from any thread and between fork and exec, because none keeps state (the page size is a constant).
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/outcome.hpp"

namespace onecopy::os {

using MutableBytes = std::span<std::byte>;

template <class T>
struct [[nodiscard]] Result {
  T value{};
  int error = 0;  // errno; 0: value is good

  explicit operator bool() const noexcept { return error == 0; }
};

// An owned descriptor: moves, closes, nothing else.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { close(); }

  int get() const noexcept { return fd_; }
  int release() noexcept { return std::exchange(fd_, -1); }  // to another owner
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  void close() noexcept;
  int fd_ = -1;
};

// --- file.cpp: what every POSIX system does -------------------------------------------------------------------

// A name relative to an open folder, even if the folder's path leads elsewhere by now; or a plain path.
struct Name {
  Name(std::string path) noexcept;  // NOLINT(google-explicit-constructor): a path is one
  Name(int open_folder, std::string name) noexcept : folder(open_folder), text(std::move(name)) {}

  int folder;
  std::string text;
};

enum class FileKind : std::uint8_t { regular, folder, link, other };

// What the kernel shows as the overflow id (65534) where it stands for every user without an id: see known_user.
inline constexpr std::uint64_t unknown_user = UINT64_MAX;

struct FileFacts {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::uint64_t allocated = 0;  // bytes that it has on the disk
  std::int64_t mtime_ns = 0;
  std::uint64_t owner = 0;   // user id, or unknown_user
  std::uint64_t links = 0;   // names that it has
  unsigned permissions = 0;  // 0755, with the set-id and sticky bits
  FileKind kind = FileKind::other;
};

Result<Fd> open_read(const Name& name) noexcept;       // follows symbolic links; never blocks on a FIFO
Result<Fd> open_no_link(const Name& name) noexcept;    // open_read of a file or folder; ELOOP for a symbolic link
Result<Fd> open_or_create(const Name& name) noexcept;  // to read and write, mode 0600; ELOOP for a symbolic link
Result<Fd> open_existing(const Name& name) noexcept;   // as open_or_create; ENOENT if it does not exist
Result<Fd> create_named(const Name& name) noexcept;    // as open_or_create; EEXIST if it exists
Result<Fd> duplicate(int fd) noexcept;
Result<FileFacts> facts_of(int fd) noexcept;
Result<FileFacts> facts_of(const Name& name) noexcept;
Result<FileFacts> facts_of_entry(const Name& name) noexcept;                            // of a symbolic link itself
Result<std::vector<std::string>> names_in(int folder);                                  // but "." and ".."
Result<std::size_t> read_at(int fd, MutableBytes into, std::uint64_t offset) noexcept;  // short only at the end
Result<std::size_t> write_at(int fd, Bytes from, std::uint64_t offset) noexcept;        // all, or an error
int set_size(int fd, std::uint64_t size) noexcept;  // new bytes read as zeros and have no reserved space
int sync_file(int fd) noexcept;
int sync_folder(const Name& folder) noexcept;
int rename_file(const Name& from, const Name& to) noexcept;
int remove_file(const Name& name) noexcept;
int create_folder(const std::string& path, unsigned permissions) noexcept;  // 0700, whatever the umask
int why_not_writable(const std::string& folder) noexcept;                   // 0: this user may create files in it
int set_permissions(int fd, unsigned permissions) noexcept;                 // 0644
unsigned permissions_of_new_files() noexcept;             // 0666 less the umask; 0600 if it is unknown
int set_written(int fd, std::int64_t mtime_ns) noexcept;  // sets the time of the last write
int set_times_now(int fd) noexcept;                       // of last access and last write, in ns of the clock
Result<std::uint64_t> free_space(int fd) noexcept;        // bytes of its file system that this user may still fill
// An exclusive lock of the whole file, released when its owner dies. 0: locked; EAGAIN: another process has the lock;
// else locks are unsupported here. The descriptor must be writable: some file systems (NFS) lock no other.
int try_lock(int fd) noexcept;
// Starts reading exactly these bytes, and does not wait; the kernel takes a limited amount at a time.
Outcome will_need(int fd, ByteRange range) noexcept;
int drop_cached(int fd, ByteRange range) noexcept;  // out of the page cache; length 0: to the end
std::uint64_t process_id() noexcept;
std::uint64_t parent_id() noexcept;
std::uint64_t user_id() noexcept;  // the effective one

// --- claim.cpp: a lock of the open file description, independent of other descriptors of the process ------------

// 0, or EAGAIN: another open file has it. Released with the last descriptor, including those of forked children.
int try_claim(int fd) noexcept;
Result<bool> is_claimed(int fd) noexcept;  // by another open file

// Exclusive on this machine (and in this network namespace) as long as the descriptor or a copy of it is open; leaves
// nothing behind. EADDRINUSE: another process has it. EOPNOTSUPP: the system has no such names.
Result<Fd> claim_name(const std::string& name) noexcept;
// Returns when the holder of a name has released it or ended, or after this time.
void wait_for_name(const std::string& name, std::chrono::milliseconds at_most) noexcept;

// A shared lock of the open file, which its descriptors and mappings keep, in forked children too. Any number of open
// files of one inode may have it. EOPNOTSUPP: the system has no such lock.
int mark_in_use(int fd) noexcept;
// Whether another open file of the inode is marked. Changes nothing, and no other process notices it.
Result<bool> is_in_use(int fd) noexcept;

// --- access.cpp: unnamed and memory files, reserved space, other ways to a descriptor --------------------------

Result<Fd> open_folder(const std::string& path) noexcept;  // for names in it; need not be readable
Result<Fd> create_unnamed(int folder) noexcept;            // EOPNOTSUPP: use a named file
bool can_link_unnamed(int fd);
int link_unnamed(int fd, const Name& to);
// A sealable file in memory, without a folder. EOPNOTSUPP: use an unnamed file.
Result<Fd> create_sealable(const std::string& name);
int seal(int fd) noexcept;  // permanent: no process can write, grow or shorten it, through any descriptor
bool is_sealed(int fd) noexcept;
// EOPNOTSUPP: this file system cannot reserve space. EINTR: interrupted by a signal; possibly nothing is reserved.
int reserve_space(int fd, ByteRange range) noexcept;
Outcome start_writeback(int fd, ByteRange range) noexcept;
int write_out(int fd, ByteRange range) noexcept;  // waits; the kernel reports EIO and ENOSPC once only
// Whether any process has the file open for writing, or maps it writable. EACCES: only the owner may ask; EOPNOTSUPP:
// the file system cannot tell, or a sandbox forbids it. A process that opens the file for writing meanwhile waits an
// instant.
Result<bool> is_open_for_writing(int fd) noexcept;
// Writes all dirty pages of a file back and waits, so that the next write through any mapping sets the file's time.
// Also on overlayfs, whose inodes have no pages: those belong to a file of another file system. EOPNOTSUPP: that file
// system cannot do it through overlayfs (tmpfs, FUSE).
int write_back(int fd) noexcept;
Result<Fd> reopen_direct(int fd);           // past the page cache; buffers, offsets, lengths on direct_alignment
Result<Fd> reopen_direct_writable(int fd);  // likewise, to write
Result<Fd> reopen_read(int fd);             // the same file, through a descriptor that cannot write
// What identifies the contents of an open file. Of a remote file with `ask`, as its server says now, else as the kernel
// has it, without waiting for a server.
struct ContentFacts {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::int64_t mtime_ns = 0;
  std::int64_t ctime_ns = 0;
};
Result<ContentFacts> content_facts(int fd, bool ask) noexcept;
Result<std::string> name_of(int fd);  // last part of the path that the kernel reports
inline constexpr std::size_t direct_alignment = 4096;

// --- memory.cpp: address space --------------------------------------------------------------------------------

inline constexpr std::size_t huge_page = std::size_t{2} << 20U;

std::size_t page_size() noexcept;
// For tests: rounding to 16 and 64 KiB pages works on a 4 KiB machine too. 0: the machine's own again.
void pretend_page_size(std::size_t size) noexcept;

Result<std::byte*> reserve_addresses(std::size_t size) noexcept;  // reads as zeros; nothing is allocated
enum class Access : std::uint8_t { read, write };
// Access::write: private pages, copied when they are written.
int map_file_at(std::byte* at, std::size_t size, int fd, std::uint64_t offset, Access access) noexcept;
int map_shared_at(std::byte* at, std::size_t size, int fd, std::uint64_t offset) noexcept;  // writable
int map_heap_at(std::byte* at, std::size_t size, Access access) noexcept;                   // zeros
int make_read_only(MutableBytes memory) noexcept;
int sync_memory(Bytes memory) noexcept;  // of a shared mapping, to its file; waits
void unmap(std::byte* at, std::size_t size) noexcept;
int lock_memory(Bytes memory) noexcept;
int unlock_memory(Bytes memory) noexcept;

// --- page_cache.cpp: which pages are in memory, and advice to read or evict them ---------------------------------

Outcome advise_huge(Bytes memory) noexcept;
Outcome advise_random(Bytes memory) noexcept;  // a fault reads one page, whatever the device reads ahead
// Reads and maps every page. EFAULT or EIO where a touch would raise SIGBUS; ENOSYS where the kernel lacks it.
int populate(Bytes memory) noexcept;
// Reads a byte of every page through the kernel: EFAULT where a touch would raise SIGBUS; ENOSYS where it is
// unsupported.
int touch(Bytes memory) noexcept;
// Moves pages into 2 MiB ones, in the page cache and here; `memory` is whole 2 MiB. ENOSYS where the kernel cannot,
// EAGAIN where another part of the kernel holds a page for an instant.
int collapse(Bytes memory) noexcept;
int drop_mapped(Bytes memory) noexcept;  // out of this process's page tables

struct CacheFacts {
  std::uint64_t cached = 0;            // bytes, whole pages
  std::uint64_t dirty = 0;             // cached, not yet on disk (0 where only mincore answers)
  std::uint64_t evicted = 0;           // was cached before, as far as the kernel remembers
  std::uint64_t recently_evicted = 0;  // evicted so recently that reading them again indicates a shortage of memory
};
// cachestat; length 0: to the end. EOPNOTSUPP: nothing was found, and the file system may keep its pages elsewhere.
Result<CacheFacts> cached_in_file(int fd, ByteRange range) noexcept;
Result<CacheFacts> cached_by_mincore(int fd, Bytes memory) noexcept;  // EPERM where mincore is not truthful

struct MappedFacts {
  std::uint64_t mapped = 0;  // bytes present in this process's page tables
  std::uint64_t huge = 0;    // of these, in 2 MiB entries
  std::uint64_t locked = 0;  // of these, locked into memory: by smaps only
};
Result<MappedFacts> mapped_here(Bytes memory) noexcept;      // PAGEMAP_SCAN, Linux 6.7
Result<MappedFacts> mapped_by_smaps(Bytes memory) noexcept;  // of whole mappings; ENODATA as shared_here
Result<MappedFacts> mapped_there(std::uint64_t process, ByteRange addresses) noexcept;  // in another's; Linux 6.7
// Bytes of whole mappings in our page tables that are in others as well. ENODATA where `memory` ends inside a mapping.
Result<std::uint64_t> shared_here(Bytes memory) noexcept;

// --- process.cpp: the memory of another process ------------------------------------------------------------------

struct PageState {
  std::uint64_t frame = 0;  // of the machine's memory; 0: only root may see it
  bool is_present = false;  // in memory, not swapped out
  bool is_swapped = false;
  bool is_anonymous = false;  // not a page of a file, and not shared memory
  bool is_shared = false;     // more than one process maps it, or the kernel cannot tell
};

// To read with read_at, where the offset is an address; EIO where nothing can be read. Not process_vm_readv: it pins
// pages, for which the kernel copies those that processes share since a fork.
Result<Fd> open_memory(std::uint64_t process);
Result<Fd> open_page_map(std::uint64_t process);
// The states of pages from `first_page` on; short at the end of the address space.
Result<std::size_t> page_states(int page_map, std::uint64_t first_page, std::span<PageState> into);

// --- signals.cpp: faults in mapped memory, and forks -----------------------------------------------------------

// Installs `repair`: when a touch fails (SIGBUS), repair(address) is called first, in the faulting thread, inside a
// signal handler. True: the touch is repeated. False: the previous handler is called. A second call puts the handler
// first again. A SIGBUS that the program sends to itself is forwarded too, except for the first one after a repair: a
// handler that was installed later (Python's faulthandler) sends it after its report, and the touch must be repeated.
int catch_lost_pages(bool (*repair)(const std::byte* address) noexcept) noexcept;
// Called around every fork: before it in the parent, and after it in each process.
int around_fork(void (*before)(), void (*in_parent)(), void (*in_child)()) noexcept;

// --- machine.cpp: the machine and this process ----------------------------------------------------------------

struct Faults {
  std::uint64_t minor = 0;
  std::uint64_t major = 0;
};
Faults faults_of_thread() noexcept;
// Nanoseconds in which this thread was ready, and others had the CPUs; 0 where the system does not tell.
std::uint64_t cpu_wait_of_thread() noexcept;
// The user that the kernel means by an id that it reports (of the owner of a file, of a peer), or unknown_user: in a
// user namespace all users that have no id there are shown as the overflow id, which a user of the namespace may have.
std::uint64_t known_user(std::uint64_t id) noexcept;
std::string name_of_user(std::uint64_t id);  // for messages: "user 1000 (alice)"
bool is_overflow_id(std::uint64_t id) noexcept;
// Whether this user owns the open file, whatever id the kernel shows.
bool is_owned(int fd) noexcept;
// From now on the kernel kills this process when the thread that created it ends.
Outcome end_with_parent() noexcept;
// Sets the name of this thread in debuggers, `top -H` and /proc: at most 15 characters.
Outcome name_thread(const char* name) noexcept;

// Lowers the priority of this thread by five nice values, and that of the threads that it starts.
Outcome lower_priority_of_thread() noexcept;
// The first 8 KiB of a small text file of the kernel; empty where it cannot be read.
std::string read_text(const std::string& path);
Result<std::uint64_t> read_ahead(std::uint64_t device);  // bytes the device reads ahead
Result<std::string> boot_id();                           // changes with each start of the kernel; ENOSYS: not reported

enum class Storage : std::uint8_t { local, memory, remote };  // remote: a server or another program answers
struct FileSystem {
  Storage storage = Storage::local;
  const char* name = "";  // "nfs"; empty: not known
  // Each write to a file, also through a mapping whose pages were written back, sets the time of its last change to the
  // kernel's own, in units of 20 ms or less.
  bool dates_writes = false;
  // Pages and times belong to inodes of other file systems (overlayfs, FUSE with passthrough).
  bool stacked = false;
};
Result<FileSystem> file_system_of(int fd) noexcept;

}  // namespace onecopy::os
