#include "onecopy/files/mapping.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <utility>

#include "files/addresses.hpp"
#include "files/guard.hpp"
#include "files/page_span.hpp"
#include "files/reading.hpp"
#include "files/same_file.hpp"
#include "onecopy/base/error.hpp"
#include "onecopy/files/available_memory.hpp"
#include "onecopy/files/file_handle.hpp"
#include "onecopy/files/snapshot.hpp"
#include "os/os.hpp"

namespace onecopy {
namespace {

// Page tables have 8 bytes for each page of 4 KiB.
constexpr std::uint64_t page_tables = 512;

FileIdentity identity_of(const os::FileFacts& facts) noexcept {
  return {facts.device, facts.inode, facts.size, facts.mtime_ns};
}

os::FileFacts facts_of_regular_file(int fd, const std::string& path) {
  const auto facts = os::facts_of(fd);
  if (!facts) throw OsError("open", path, facts.error);
  if (facts.value.kind == os::FileKind::folder) throw OsError("open", path, EISDIR);
  if (facts.value.kind == os::FileKind::other)
    throw OsError("open", path, ENODEV, "not a regular file (a FIFO, socket or device): it cannot be mapped");
  if (facts.value.size == 0) throw OsError("map", path, ENODATA, "the file is empty");
  return facts.value;
}

// The range asked for, proven to lie inside the file.
ByteRange range_in_file(std::uint64_t size, const MappingOptions& options, const std::string& path) {
  const std::uint64_t rest = options.offset <= size ? size - options.offset : 0;
  const ByteRange range{options.offset, options.length.value_or(rest)};
  if (!in_bounds(size, range.offset, range.length))
    throw OsError("map", path, EINVAL,
                  concat("a range of ", range.length, " bytes at offset ", range.offset,
                         " is beyond the end of the file, which has ", size, " bytes"));
  if (range.length == 0) throw OsError("map", path, EINVAL, "the range has 0 bytes");
  if (range.length > std::numeric_limits<std::size_t>::max() / 2)
    throw OsError("map", path, ENOMEM, "the range is larger than the address space");
  return range;
}

// Other processes use memory meanwhile, such as those that copy the same file. The query takes 0.1 ms.
bool is_memory_short(ByteRange piece, ByteRange all) noexcept {
  constexpr std::uint64_t between = std::uint64_t{64} << 20U;
  if (piece.offset != all.offset && piece.offset % between != 0) return false;
  try {
    const auto memory = available_memory();
    return memory && memory->bytes < std::min(between, all.length);
  } catch (const std::bad_alloc&) {
    return true;
  }
}

}  // namespace

struct Mapping::State {
  State(os::Fd descriptor, std::string name, const MappingOptions& options, bool is_named)
      : fd(std::move(descriptor)),
        path(std::move(name)),
        facts(facts_of_regular_file(fd.get(), path)),
        range(range_in_file(facts.size, options, path)),
        mode(options.mode),
        private_pages(options.private_pages),
        named(is_named),
        span(page_span(range, os::page_size())),
        tail(slack_after(range, os::page_size()) < readable_tail ? os::page_size() : 0),
        addresses(reserve()) {
    if (mode == Mode::map)
      map_file();
    else
      copy_file(options.threads);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (PagesUser* user = users.load(); user != nullptr;)
      delete std::exchange(user, user->before);  // NOLINT: keep() took them
  }

  // Reserves addresses for the pages and the tail. Nothing is mapped over the tail, which reads as zeros.
  Addresses reserve() {
    auto reserved = Addresses::reserve(span.length + tail, span.offset);
    check(reserved.error, "reserve addresses for");
    first_page = reserved.value.at();
    return std::move(reserved.value);
  }

  void map_file() {
    const auto access = private_pages ? os::Access::write : os::Access::read;
    const int error = os::map_file_at(first_page, span.lead + range.length, fd.get(), span.offset, access);
    if (error == ENODEV)
      throw OsError("map", path, error,
                    "its file system does not support shared mappings (FUSE with direct I/O): use mode copy");
    check(error, "map");
    read_far_ahead();
    guarded.emplace(
        GuardedPages{first_page, span.length, fd.get(), span.offset, range.offset + range.length, private_pages}, path);
  }

  // Where a server answers, each touch waits for it, and the kernel reads 64 KiB to 128 KiB at a time. With these two
  // advices it reads 2 MiB instead, in requests as large as the file system has, whether or not it has 2 MiB pages
  // (docs/decisions/reading-and-warming.md). Not for a file that memory does not hold: touches here and there would
  // read it again and again.
  void read_far_ahead() const {
    if (private_pages || range.length < os::huge_page || !is_remote(fd.get())) return;
    if (const auto memory = available_memory(); memory && is_large(range.length, memory->bytes)) return;
    const os::MutableBytes pages{first_page, span.length};
    if (os::advise_huge(pages) == Outcome::applied) (void)os::advise_random(pages);
  }

  void copy_file(unsigned threads) {
    expect_memory(span.length + span.length / page_tables, "copy", path, "map it (mode \"map\"), or open parts of it");
    check(os::map_heap_at(first_page, span.length, os::Access::write), "map");
    (void)os::advise_huge({first_page, span.length});  // refused: the same bytes in small pages
    bool left = false;
    try {
      fill(threads, left);
    } catch (...) {
      if (left) addresses.leave();
      throw;
    }
    if (!private_pages) check(os::make_read_only({first_page, span.length}), "protect");
  }

  // Bytes in the page cache are copied from it. The rest is read through it, so that processes that copy side by side
  // read a device once; where not even four copies would fit into memory, it is read past the cache (O_DIRECT), or
  // dropped again. Where `left` becomes true, the addresses have to stay reserved for ever.
  void fill(unsigned threads, bool& left) const {
    const auto available = available_memory();
    const bool is_small = available && range.length < available->bytes / 4;
    const auto read = [into = memory(), all = range](const Reader& reader, ByteRange piece, std::size_t& done) {
      if (is_memory_short(piece, all)) return ENOMEM;
      return reader.read(into.subspan(piece.offset - all.offset, piece.length), piece.offset, done);
    };
    read_in_pieces({fd.get(), is_small ? Leaves::read : Leaves::nothing, range, threads, "read", path, read}, left);
  }

  void check(int error, const char* operation) const {
    if (error != 0) throw OsError(operation, path, error);
  }

  os::MutableBytes memory() const noexcept { return {first_page + span.lead, static_cast<std::size_t>(range.length)}; }

  os::Fd fd;
  std::string path;
  os::FileFacts facts;
  ByteRange range;
  Mode mode;
  bool private_pages;
  bool named;  // the path leads to the file; false where only a descriptor was given
  PageSpan span;
  std::uint64_t tail;
  std::byte* first_page = nullptr;
  FileIdentity identity = identity_of(facts);
  Addresses addresses;             // made from everything above
  std::optional<Guarded> guarded;  // destroyed before the addresses are released
  std::atomic<PagesUser*> users = nullptr;
};

FileHandle::~FileHandle() { const os::Fd closed(descriptor_); }

Mapping::Mapping(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Mapping::Mapping(Mapping&& other) noexcept = default;
Mapping& Mapping::operator=(Mapping&& other) noexcept = default;
Mapping::~Mapping() = default;

Mapping Mapping::open(const std::filesystem::path& path, const MappingOptions& options) {
  auto fd = os::open_read(path.string());
  if (!fd) throw OsError("open", path.string(), fd.error);
  return Mapping(std::make_unique<State>(std::move(fd.value), path.string(), options, true));
}

Mapping Mapping::from_descriptor(int fd, std::string name, const MappingOptions& options) {
  auto copy = os::duplicate(fd);
  if (!copy) throw OsError("duplicate descriptor of", name, copy.error);
  const bool leads_here = is_same_file(os::facts_of(copy.value.get()), os::facts_of(name));
  return Mapping(std::make_unique<State>(std::move(copy.value), std::move(name), options, leads_here));
}

Bytes Mapping::bytes() const& noexcept { return state_ ? Bytes(state_->memory()) : Bytes(); }

std::span<std::byte> Mapping::private_bytes() & noexcept {
  return private_pages() ? state_->memory() : std::span<std::byte>();
}

void Mapping::read(std::uint64_t offset, std::span<std::byte> into) const {
  if (!in_bounds(state_->range.length, offset, into.size()))
    throw OsError("read", path(), EINVAL, "the range is beyond the end of the mapping");
  if (mode() == Mode::copy) {
    std::ranges::copy(bytes().subspan(offset, into.size()), into.begin());
    return;
  }
  const auto got = os::read_at(descriptor(), into, file_offset() + offset);
  if (!got || got.value < into.size())
    throw_read_error("read", path(), got ? ENODATA : got.error, file_offset() + offset + got.value);
}

const std::string& Mapping::path() const& noexcept { return state_->path; }
const FileIdentity& Mapping::identity() const& noexcept { return state_->identity; }
std::uint64_t Mapping::file_offset() const noexcept { return state_->range.offset; }
Mode Mapping::mode() const noexcept { return state_->mode; }
bool Mapping::private_pages() const noexcept { return state_ && state_->private_pages; }
int Mapping::descriptor() const noexcept { return state_->fd.get(); }
bool Mapping::sealed() const noexcept { return os::is_sealed(state_->fd.get()); }

void Mapping::keep(std::unique_ptr<PagesUser> user) const noexcept {
  PagesUser* const last = user.release();
  last->before = state_->users.load();
  while (!state_->users.compare_exchange_weak(last->before, last)) {
  }
}

std::optional<Loss> Mapping::loss() const noexcept {
  return state_ && state_->guarded ? state_->guarded->loss() : std::nullopt;
}

bool Mapping::changed() const {
  // The next write through a mapping sets a time, if no page is dirty.
  if (os::is_open_for_writing(state_->fd.get()).value) (void)os::write_back(state_->fd.get());
  const auto now = os::facts_of(state_->fd.get());
  if (!now || identity_of(now.value) != state_->identity) return true;
  if (!state_->named) return false;
  const auto at_path = os::facts_of(state_->path);
  return !at_path || identity_of(at_path.value) != state_->identity;
}

void expect_whole(const Mapping& mapping) {
  if (const auto loss = mapping.loss()) fail_of_loss(mapping.path(), *loss);
}

void expect_identity(const Mapping& mapping, const FileIdentity& expected) {
  if (mapping.identity() == expected) return;
  const bool replaced = mapping.identity().device != expected.device || mapping.identity().inode != expected.inode;
  throw FileChanged("open", mapping.path(), ESTALE,
                    replaced ? "the path now refers to a different file"
                             : "the file has been written or truncated since it was opened");
}

}  // namespace onecopy
