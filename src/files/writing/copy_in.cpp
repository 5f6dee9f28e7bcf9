#include "files/writing/copy_in.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "files/reading.hpp"
#include "onecopy/files/available_memory.hpp"

namespace onecopy {
namespace {

class Copier {
 public:
  Copier(int fd, os::MutableBytes into, std::uint64_t offset)
      : reader_(fd, what_to_leave(into.size())), into_(into), offset_(offset) {}

  // Pieces are cut at multiples of the piece size in the *file*, so that all but the first and last are aligned.
  std::uint64_t pieces() const noexcept { return (lead() + into_.size() + reader_.piece() - 1) / reader_.piece(); }
  unsigned threads() const noexcept { return reader_.threads(); }

  bool operator()(std::uint64_t piece) noexcept {
    const std::uint64_t begin = piece == 0 ? 0 : piece * reader_.piece() - lead();
    const std::uint64_t end = std::min<std::uint64_t>((piece + 1) * reader_.piece() - lead(), into_.size());
    std::size_t done = 0;
    const int error =
        is_over_limit(piece) ? ENOMEM : reader_.read(into_.subspan(begin, end - begin), offset_ + begin, done);
    int none = 0;
    if (error != 0 && error_.compare_exchange_strong(none, error)) failed_at_ = offset_ + begin + done;
    return error == 0;
  }

  int error() const noexcept { return error_; }
  std::uint64_t failed_at() const noexcept { return failed_at_; }  // of the first error; read after the threads' end

 private:
  // Processes that copy the same file side by side read it once if what they read stays in the page cache. Where not
  // even four copies would fit, it is no use there.
  static Leaves what_to_leave(std::uint64_t size) {
    const auto memory = available_memory();
    return memory && size < memory->bytes / 4 ? Leaves::read : Leaves::nothing;
  }

  // Other processes take memory meanwhile, such as those that copy the same file. Asking costs 0.1 ms.
  bool is_over_limit(std::uint64_t piece) const noexcept {
    constexpr std::uint64_t between = std::uint64_t{64} << 20U;
    if (piece * reader_.piece() % between != 0) return false;
    try {
      const auto memory = available_memory();
      return memory && memory->bytes < std::min<std::uint64_t>(between, into_.size());
    } catch (const std::bad_alloc&) {
      return true;
    }
  }

  std::uint64_t lead() const noexcept { return offset_ % reader_.piece(); }

  Reader reader_;
  os::MutableBytes into_;
  std::uint64_t offset_;
  std::atomic<int> error_{0};
  std::uint64_t failed_at_ = 0;
};

}  // namespace

void copy_in(int fd, os::MutableBytes into, std::uint64_t offset, const CopyOptions& options, bool& left) {
  const auto copier = std::make_shared<Copier>(fd, into, offset);
  const unsigned threads = options.threads != 0 ? options.threads : copier->threads();
  const auto watched = watch_pieces(copier->pieces(), threads, copier, read_patience());
  left = watched.left;
  throw_if_stopped(watched, "read", options.path);
  if (copier->error() != 0) throw_read_error("read", options.path, copier->error(), copier->failed_at());
}

}  // namespace onecopy
