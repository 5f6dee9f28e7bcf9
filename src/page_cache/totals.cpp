#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "onecopy/page_cache/report.hpp"

namespace onecopy {
namespace {

template <class Report, class Number>
Number sum(std::span<const Report> reports, Number Report::* member) {
  Number sum{};
  for (const Report& report : reports) sum += report.*member;
  return sum;
}

// Empty if one part is: a partial sum would look like the total.
template <class Report>
std::optional<std::uint64_t> sum(std::span<const Report> reports, std::optional<std::uint64_t> Report::* member) {
  std::uint64_t sum = 0;
  for (const Report& report : reports) {
    const auto& part = report.*member;
    if (!part) return std::nullopt;
    sum += *part;
  }
  return sum;
}

// Each text once.
template <class Report>
std::string every_text(std::span<const Report> reports, std::string Report::* member, const char* between) {
  std::vector<std::string_view> seen;
  std::string text;
  for (const Report& report : reports) {
    const std::string& part = report.*member;
    if (part.empty() || std::ranges::find(seen, part) != seen.end()) continue;
    text += (seen.empty() ? "" : between) + part;
    seen.emplace_back(part);
  }
  return text;
}

template <class Report>
std::string every_reason(std::span<const Report> reports) {
  const auto text = every_text(reports, &Report::reason, "; ");
  return reports.size() > 1 ? text + "; " + std::to_string(reports.size()) + " files" : text;
}

template <class Report, class Value>
void keep_worst(std::span<const Report> reports, Value Report::* member, Value& worst) {
  for (const Report& report : reports) worst = std::max(worst, report.*member);
}

std::optional<double> huge_share(std::span<const WarmReport> reports) {
  double huge = 0;
  double bytes = 0;
  for (const auto& report : reports) {
    if (!report.huge_share) continue;
    huge += *report.huge_share * static_cast<double>(report.bytes);
    bytes += static_cast<double>(report.bytes);
  }
  return bytes > 0 ? std::optional(huge / bytes) : std::nullopt;
}

}  // namespace

Residency total(std::span<const Residency> reports) {
  Residency all;
  all.bytes = sum(reports, &Residency::bytes);
  all.cached = sum(reports, &Residency::cached);
  all.dirty = sum(reports, &Residency::dirty);
  all.mapped = sum(reports, &Residency::mapped);
  all.huge = sum(reports, &Residency::huge);
  all.source = Source::cachestat;
  keep_worst(reports, &Residency::source, all.source);
  return all;
}

WarmReport total(std::span<const WarmReport> reports) {
  if (reports.size() == 1) return reports.front();
  WarmReport all;
  all.bytes = sum(reports, &WarmReport::bytes);
  all.filled = sum(reports, &WarmReport::filled);
  all.verified = reports.empty() ? std::nullopt : sum(reports, &WarmReport::verified);
  all.cached_before = sum(reports, &WarmReport::cached_before);
  all.cached_after = sum(reports, &WarmReport::cached_after);
  all.huge_share = huge_share(reports);
  all.minor_faults = sum(reports, &WarmReport::minor_faults);
  all.major_faults = sum(reports, &WarmReport::major_faults);
  all.seconds = sum(reports, &WarmReport::seconds);
  all.gib_per_s = gib_per_s(all.filled, all.seconds);
  keep_worst(reports, &WarmReport::mechanism, all.mechanism);  // "read" is what populating becomes where it cannot be
  keep_worst(reports, &WarmReport::huge, all.huge);            // not asked is less than applied
  keep_worst(reports, &WarmReport::threads, all.threads);
  keep_worst(reports, &WarmReport::piece, all.piece);
  keep_worst(reports, &WarmReport::latency, all.latency);
  all.file_system = every_text(reports, &WarmReport::file_system, ", ");
  all.complete = std::ranges::all_of(reports, &WarmReport::complete);
  all.reason = every_reason(reports);
  return all;
}

EvictReport total(std::span<const EvictReport> reports) {
  if (reports.size() == 1) return reports.front();
  EvictReport all;
  all.bytes = sum(reports, &EvictReport::bytes);
  all.cached_before = sum(reports, &EvictReport::cached_before);
  all.cached_after = sum(reports, &EvictReport::cached_after);
  all.seconds = sum(reports, &EvictReport::seconds);
  all.reason = every_reason(reports);
  return all;
}

PinReport total(std::span<const PinReport> reports) {
  if (reports.size() == 1) return reports.front();
  PinReport all;
  all.bytes = sum(reports, &PinReport::bytes);
  all.pinned = sum(reports, &PinReport::pinned);
  all.outcome = Outcome::applied;
  keep_worst(reports, &PinReport::outcome, all.outcome);
  all.reason = every_reason(reports);
  return all;
}

}  // namespace onecopy
