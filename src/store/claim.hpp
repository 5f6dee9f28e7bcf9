// The right to build one artefact: a lock on a file, held by one thread of one process.
//
// Lost with its holder. A forked child has neither the lock nor the descriptor, so that a builder who is killed gives
// it back although children of its owner live. The file says who holds it; when it is released, the file goes first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "store/folder.hpp"

namespace onecopy::store {

struct Holder {
  std::uint64_t process = 0;  // 0: not told yet
  std::int64_t since_ns = 0;  // since 1970
  std::uint64_t bytes = 0;
  std::string waits_for;  // the digest of what its build waits for, which another one builds; empty: it does not wait
  std::string key;
};

struct HeldClaim;

class Claim {
 public:
  // None: somebody else has it. Throws OsError.
  static std::optional<Claim> take(const File& file, const std::string& key);

  // Whether this thread has it, or had it when this process was forked from it.
  static bool is_ours(const File& file);

  Claim(Claim&&) noexcept = default;
  Claim& operator=(Claim&&) = delete;
  ~Claim();

  bool is_inherited() const;  // this process was forked by the holder: it is not ours

 private:
  explicit Claim(std::shared_ptr<HeldClaim> held) noexcept : held_(std::move(held)) {}

  std::shared_ptr<HeldClaim> held_;
};

struct ClaimFacts {
  bool held = false;  // false: its holder is dead
  Holder holder;      // as far as the file says
};

// None: nobody claims, and nobody died doing so. Throws OsError.
std::optional<ClaimFacts> look_at_claim(const File& file);

// Says in the claims of this thread what their builds wait for: a digest; empty: they go on.
void tell_wait(const std::string& digest);

// Whether who builds this waits, directly or for others who do, for what this thread builds.
bool waits_for_us(const Folder& folder, const Holder& holder);

}  // namespace onecopy::store
