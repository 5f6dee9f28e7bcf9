// A million values inside one another, each with a span of its own: what opening them costs beside allocating as many
// plain records in the same process.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <utility>
#include <vector>

#include "onecopy/structs/structs.hpp"
#include "report.hpp"

namespace bench {

struct Sub {
  onecopy::OwningSpan<std::uint32_t> items;
};

struct Nested {
  onecopy::OwningSpan<Sub> subs;
};

// The sub-value i has 0 ... 7 numbers.
inline int build_nested(const std::filesystem::path& path, std::uint64_t count) {
  std::vector<Sub> subs(count);
  for (std::uint64_t i = 0; i < count; ++i)
    subs[i].items = std::vector<std::uint32_t>(i * 5 % 8, static_cast<std::uint32_t>(i));
  const Nested nested{.subs = std::move(subs)};
  std::cout << Json().add("bytes", onecopy::save(path, nested)).text() << '\n' << std::flush;
  return 0;
}

inline std::uint64_t sum_of(const Nested& nested) {
  std::uint64_t sum = 0;
  for (const Sub& sub : nested.subs)
    for (const std::uint32_t item : sub.items) sum += item;
  return sum;
}

struct Record {  // 24 bytes: pointer, owner and size of a span
  std::array<std::uint64_t, 3> words;
};

inline std::vector<Record> filled_records(std::uint64_t count) {
  std::vector<Record> records;
  records.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) records.push_back({{i, i + 1, i + 2}});
  return records;
}

inline int open_nested(const std::filesystem::path& path) {
  const auto before = Memory::now();
  const auto start = Clock::now();
  const auto file = onecopy::open<Nested>(path);
  const auto open_ns = nanoseconds_since(start);
  const auto after = Memory::now();
  const std::uint64_t count = file->subs.size();
  const auto again = Clock::now();
  const auto records = filled_records(count);
  const auto records_ns = nanoseconds_since(again);
  std::cout << Json()
                   .add("open_ns", open_ns)
                   .add("records_ns", records_ns)
                   .add("count", count)
                   .add("sum", sum_of(*file))
                   .add("last_record", records.empty() ? 0 : records.back().words[2])  // so that they are made
                   .add("objects", file.report().objects)
                   .add("private_bytes", after.anonymous - std::min(before.anonymous, after.anonymous))
                   .add("reported_private_bytes", file.report().private_bytes)
                   .text()
            << '\n'
            << std::flush;
  return 0;
}

}  // namespace bench
