// Sorted strings, each with a number: string to number, number to string, and all strings with a prefix.
//
//     const auto words = StringDictionary::build({"mapping", "map", "copy"});
//     words[1];                // "map"
//     words.find("mapping");   // 2
//     words.prefix("ma");      // {1, 3}
//
// Front coding, as in the term dictionaries of search engines: in buckets of 16 strings, each says how many bytes it
// shares with the one before and what follows. A search is binary over the first strings of the buckets, which stand
// there whole, and then goes through one bucket. Strings are bytes, compared as unsigned; they may be empty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "onecopy/structs/owning_span.hpp"

namespace example {

struct StringDictionary {
  static constexpr std::uint64_t bucket_size = 16;

  struct Range {  // of numbers: [first, last)
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    friend bool operator==(const Range&, const Range&) = default;
  };

  std::uint64_t size = 0;
  onecopy::OwningSpan<std::uint64_t> buckets;  // where in `text` each begins
  onecopy::OwningSpan<std::uint8_t> text;

  // In any order; a string that comes twice has one number.
  static StringDictionary build(std::vector<std::string> strings) {
    std::ranges::sort(strings);
    strings.erase(std::unique(strings.begin(), strings.end()), strings.end());
    std::vector<std::uint64_t> buckets;
    std::vector<std::uint8_t> text;
    std::string_view before;
    for (std::size_t i = 0; i < strings.size(); ++i) {
      const std::string_view string = strings[i];
      if (i % bucket_size == 0) {
        buckets.push_back(text.size());
        before = {};
      }
      const auto differ = std::ranges::mismatch(string, before).in1;
      append_number(text, static_cast<std::uint64_t>(differ - string.begin()));
      append_number(text, static_cast<std::uint64_t>(string.end() - differ));
      text.insert(text.end(), differ, string.end());
      before = string;
    }
    return {.size = strings.size(), .buckets = std::move(buckets), .text = std::move(text)};
  }

  // The string with a number below size.
  std::string operator[](std::uint64_t id) const {
    Bucket bucket(text.data() + buckets[id / bucket_size]);
    for (std::uint64_t i = 0; i < id % bucket_size; ++i) bucket.next();
    return bucket.next();
  }

  std::optional<std::uint64_t> find(std::string_view string) const {
    const auto [id, found] = search(string);
    return found ? std::optional(id) : std::nullopt;
  }

  // The numbers of all strings that begin with this one.
  Range prefix(std::string_view start) const {
    const auto first = search(start).id;
    std::string behind(start);  // the least string that is greater than all of them
    while (!behind.empty() && behind.back() == '\xff') behind.pop_back();
    if (behind.empty()) return {first, size};
    behind.back() = static_cast<char>(static_cast<unsigned char>(behind.back()) + 1);
    return {first, search(behind).id};
  }

 private:
  // Goes through the strings of a bucket, each made from the one before.
  class Bucket {
   public:
    explicit Bucket(const std::uint8_t* at) : at_(at) {}

    const std::string& next() {
      current_.resize(read_number(at_));
      const std::uint64_t rest = read_number(at_);
      current_.append(reinterpret_cast<const char*>(at_), rest);
      at_ += rest;
      return current_;
    }

   private:
    const std::uint8_t* at_;
    std::string current_;
  };

  struct Place {
    std::uint64_t id;  // of the first string that is not less
    bool found;        // and it is equal
  };

  Place search(std::string_view string) const {
    const auto behind = std::ranges::partition_point(buckets, [&](auto at) { return head(at) <= string; });
    if (behind == buckets.begin()) return {0, false};
    const auto number = static_cast<std::uint64_t>(std::distance(buckets.begin(), behind)) - 1;
    const std::uint64_t end = std::min((number + 1) * bucket_size, size);
    Bucket bucket(text.data() + buckets[number]);
    for (std::uint64_t id = number * bucket_size; id < end; ++id) {
      const auto order = bucket.next().compare(string);
      if (order >= 0) return {id, order == 0};
    }
    return {end, false};
  }

  // The first string of the bucket that begins there: it shares nothing, so it is there as it is.
  std::string_view head(std::uint64_t begin) const {
    const std::uint8_t* at = text.data() + begin + 1;
    const std::uint64_t length = read_number(at);
    return {reinterpret_cast<const char*>(at), length};
  }

  // Seven bits a byte, the lowest first; the highest bit says that more follow.
  static void append_number(std::vector<std::uint8_t>& text, std::uint64_t number) {
    for (; number >= 128; number >>= 7) text.push_back(static_cast<std::uint8_t>(number | 128));
    text.push_back(static_cast<std::uint8_t>(number));
  }

  static std::uint64_t read_number(const std::uint8_t*& at) {
    std::uint64_t number = 0;
    unsigned shift = 0;
    for (; *at >= 128; shift += 7) number |= std::uint64_t{*at++ & 127U} << shift;
    return number | std::uint64_t{*at++} << shift;
  }
};

}  // namespace example
