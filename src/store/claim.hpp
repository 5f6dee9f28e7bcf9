// The right to build one artefact: a lock on a file, held by one thread of one process.
//
// Released when its holder dies. A forked child has neither the lock nor the descriptor, so that a killed builder
// releases it even if its children live. The file records the holder; at release, the file is removed first.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "store/folder.hpp"

namespace onecopy::store {

struct Holder {
  std::uint64_t process = 0;  // 0: not recorded yet
  std::int64_t since_ns = 0;  // since 1970
  std::uint64_t bytes = 0;
  std::string waits_for;  // the digest of the artefact that its build waits for; empty: none
  std::string key;
};

struct HeldClaim;

class Claim {
 public:
  // None: another process or thread has it. Throws OsError.
  static std::optional<Claim> take(const File& file, const std::string& key);

  // The right to remove files in a folder: a lock of the folder itself, which leaves no file. None: another process or
  // thread has it. Throws OsError where folders cannot be locked.
  static std::optional<Claim> take(const Folder& folder);

  // Whether this thread has it, or had it when this process was forked from it.
  static bool is_ours(const File& file);

  Claim(Claim&&) noexcept = default;
  Claim& operator=(Claim&&) = delete;
  ~Claim();

  bool is_inherited() const;  // this process was forked by the holder and does not own it

 private:
  explicit Claim(std::shared_ptr<HeldClaim> held) noexcept : held_(std::move(held)) {}

  std::shared_ptr<HeldClaim> held_;
};

struct ClaimFacts {
  bool held = false;  // false: its holder is dead
  Holder holder;      // as far as the file records it
};

// None: no process claims it, and none died with a claim. Throws OsError.
std::optional<ClaimFacts> look_at_claim(const File& file);

// Records in the claims of this thread what their builds wait for: a digest; empty: nothing.
void tell_wait(const std::string& digest);

// Whether the builder of this artefact waits, directly or indirectly, for what this thread builds.
bool waits_for_us(const Folder& folder, const Holder& holder);

}  // namespace onecopy::store
