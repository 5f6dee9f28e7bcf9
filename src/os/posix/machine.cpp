#include <sys/resource.h>
#include <unistd.h>

#include "os/os.hpp"

namespace onecopy::os {

namespace {

// POSIX requires the times of `rusage` alone.
template <class Usage>
Faults faults_in(const Usage& usage) noexcept {
  if constexpr (requires { usage.ru_minflt + usage.ru_majflt; })
    return {static_cast<std::uint64_t>(usage.ru_minflt), static_cast<std::uint64_t>(usage.ru_majflt)};
  else
    return {};
}

}  // namespace

Faults faults_of_thread() noexcept {
  struct rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? faults_in(usage) : Faults{};
}

std::uint64_t cpu_wait_of_thread() noexcept { return 0; }

bool is_overflow_id(std::uint64_t /*id*/) noexcept { return false; }

std::uint64_t known_user(std::uint64_t id) noexcept { return id; }

bool is_owned(int /*fd*/) noexcept { return false; }

Outcome end_with_parent() noexcept { return Outcome::unsupported; }
Outcome name_thread(const char* /*name*/) noexcept { return Outcome::unsupported; }
Outcome lower_priority_of_thread() noexcept { return Outcome::unsupported; }  // POSIX has priorities of processes

Result<std::string> boot_id() { return {{}, ENOSYS}; }

Result<std::uint64_t> read_ahead(std::uint64_t /*device*/) { return {0, ENOSYS}; }

Result<FileSystem> file_system_of(int /*fd*/) noexcept { return {{}, ENOSYS}; }

}  // namespace onecopy::os
