#include "page_cache/warm_plan.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "onecopy/files/available_memory.hpp"

namespace onecopy {
namespace {

// Threads wait for the disk, not for CPUs: eight keep enough requests in flight whatever the machine has.
// Measured on two cores, 1.5 GiB cold: 0.61 s with 8, 0.59 with 1 and 2 where the device reads 8 MiB ahead; 0.55 s with
// 8, 0.71 with 1 and 2 where it reads 128 KiB ahead.
constexpr unsigned reading_threads = 8;

constexpr unsigned most_threads = 64;

// Fewer threads do not cover the latency of a slow file system.
constexpr unsigned fewest_threads = 4;
constexpr double min_speedup_to_double = 1.2;
// FUSE, 0.5 ms a request, two CPUs: 8 threads wait 0.12 of their time for a CPU, 16 wait 0.32 and are not faster.
// Beside a program that compiles for 3 s, 8 wait 0.26 and delay it by 0.7 s, 4 wait 0.19 and delay it by 0.2 s. Where
// requests take 5 ms, 16 wait 0.02.
constexpr double max_cpu_wait_to_grow = 0.1;
constexpr double min_cpu_wait_to_halve = 0.18;

// From here on a plain touch in file order keeps the device busy without us (measured at 8 MiB: 1.47 s for 3.77 GiB
// touched, 1.33 to 1.43 s populated).
constexpr std::uint64_t large_read_ahead = std::uint64_t{4} << 20U;

// Pages that are being read cannot be reclaimed: all threads together have at most a quarter of the memory in flight,
// or the kernel would end the process in a small control group.
constexpr std::uint64_t in_flight_divisor = 4;

// A fault reads two huge pages, and the second may be beyond the end: that pays up to a quarter of what is wanted.
// Without huge pages a fault reads around itself, and then ahead, which pays up to a tenth only.
constexpr std::uint64_t huge_overshoot = 2 * os::huge_page;
constexpr std::uint64_t huge_part = 4;
constexpr std::uint64_t small_part = 10;
constexpr std::uint64_t usual_read_ahead = std::uint64_t{128} << 10U;

bool is_too_large(const Conditions& conditions) {
  return conditions.available && is_large(conditions.file_size, *conditions.available);
}

bool choose_huge(const Conditions& conditions, Huge asked, std::string& reason) {
  if (asked == Huge::yes) return true;
  if (asked == Huge::no) {
    reason += "small pages as requested";
    return false;
  }
  // A huge page read for one small access is 512 times too much: a file larger than half of the available memory uses
  // small pages.
  if (!is_too_large(conditions)) return true;
  reason += "small pages, because " + readable(conditions.file_size) + " is more than half of the " +
            readable(conditions.available.value_or(0)) + " of available memory";
  return false;
}

// The name of a slow file system, and how long it takes to answer. Empty: it is not slow.
std::string slowness(const Conditions& conditions) {
  const auto& system = conditions.file_system;
  const bool remote = system && system->storage == os::Storage::remote;
  if (!remote && conditions.latency.value_or(0) < slow_answer) return {};
  std::string text = remote ? std::string(system->name) : "a disk";
  if (!conditions.latency) return text;
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), " that answers after %.2g ms", *conditions.latency * 1e3);
  return text + number.data();
}

}  // namespace

std::string readable(std::uint64_t bytes) {
  constexpr std::array units{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, units.at(unit));
  return text.data();
}

Plan choose(const Conditions& conditions, const WarmOptions& options) {
  const unsigned threads = options.threads != 0 ? options.threads : reading_threads;
  Plan nothing{.mechanism = Mechanism::none, .threads = threads, .nothing_missing = true};
  if (conditions.private_copy || conditions.missing == 0) {
    nothing.reason = conditions.private_copy ? "a private copy is in memory already" : "already in memory";
    return nothing;
  }
  if (options.mechanism == Mechanism::none)
    return {.mechanism = Mechanism::none,
            .threads = threads,
            .too_large = is_too_large(conditions),
            .reason = "nothing was done, as requested"};
  Plan plan;
  const std::uint64_t in_flight =
      std::max(conditions.read_ahead.value_or(0), std::uint64_t{os::huge_page});  // a thread's
  const std::uint64_t memory = conditions.available.value_or(UINT64_MAX);
  const auto within_memory = [&](unsigned wanted) {
    return static_cast<unsigned>(std::clamp<std::uint64_t>(memory / in_flight_divisor / in_flight, 1, wanted));
  };
  plan.threads = plan.most_threads = within_memory(threads);
  plan.huge = choose_huge(conditions, options.huge, plan.reason);
  if (plan.huge) plan.reason = "2 MiB pages requested before reading";
  plan.most = options.budget.value_or(memory - std::min(memory, 2 * in_flight * plan.threads));
  if (options.huge != Huge::yes) {
    const std::uint64_t ahead = conditions.read_ahead.value_or(usual_read_ahead);
    plan.overshoot = plan.huge ? huge_overshoot : ahead + ahead / 2;
    plan.part = plan.huge ? huge_part : small_part;
    plan.at_once = std::max(ahead, usual_read_ahead);
  }
  if (const auto slow = slowness(conditions); !slow.empty()) {
    plan.slow = true;
    if (options.threads == 0) plan.most_threads = within_memory(most_threads);
    plan.piece = step_size;
    plan.reason += "; on " + slow;
  }
  if (options.mechanism) {
    plan.mechanism = *options.mechanism;
    plan.reason += "; mechanism as requested";
    return plan;
  }
  const bool reads_ahead = conditions.read_ahead && *conditions.read_ahead >= large_read_ahead;
  if (options.in_order && reads_ahead) {
    plan.mechanism = plan.huge ? Mechanism::advise : Mechanism::none;
    plan.reason += "; accessing pages in file order is as fast as reading now, because the device reads " +
                   readable(*conditions.read_ahead) + " ahead";
  }
  return plan;
}

unsigned next_threads(const Round& round, double best, unsigned most) noexcept {
  if (round.cpu_wait > min_cpu_wait_to_halve)
    return std::max(round.threads / 2, std::min(fewest_threads, round.threads));
  const bool grows = round.cpu_wait <= max_cpu_wait_to_grow && round.rate >= min_speedup_to_double * best;
  return grows ? std::min(2 * round.threads, most) : round.threads;
}

}  // namespace onecopy
