#include "scratch/write_queue.hpp"

#include <algorithm>
#include <bit>

namespace onecopy {
namespace {

constexpr std::uint64_t least_part = std::uint64_t{64} << 10U;
constexpr std::uint64_t largest_part = std::uint64_t{8} << 20U;  // larger parts are not faster

}  // namespace

WriteQueue::WriteQueue(std::uint64_t cap) noexcept
    : cap_(cap), part_size_(std::clamp(std::bit_floor(cap / 16), least_part, largest_part)) {}

void WriteQueue::touch(ByteRange range) {
  const std::uint64_t number = range.offset / part_size_;
  const auto known = places_.find(number);
  if (known == places_.end()) {
    std::list<Part> made;  // inserted into both lists or into neither, if memory is short
    made.push_back({number, range.length, false});
    places_.emplace(number, made.begin());
    waiting_.splice(waiting_.end(), made);
    held_ += range.length;
    waiting_bytes_ += range.length;
    return;
  }
  Part& part = *known->second;
  const std::uint64_t more = std::min(range.length, part_size_ - part.bytes);
  waiting_bytes_ += part.begun ? part.bytes + more : more;
  held_ += more;
  part.bytes += more;
  waiting_.splice(waiting_.end(), part.begun ? begun_ : waiting_, known->second);
  part.begun = false;
}

std::optional<std::uint64_t> WriteQueue::next_to_begin() {
  if (waiting_bytes_ <= cap_ / 2 || waiting_.size() < 2) return std::nullopt;
  Part& part = waiting_.front();
  waiting_bytes_ -= part.bytes;
  part.begun = true;
  begun_.splice(begun_.end(), waiting_, waiting_.begin());
  return begun_.back().number;
}

std::optional<std::uint64_t> WriteQueue::next_to_drop() {
  if (in_bounds(cap_, held_, besides_) || places_.size() < 2) return std::nullopt;
  const std::uint64_t number = begun_.empty() ? waiting_.front().number : begun_.front().number;
  forget(number);
  return number;
}

void WriteQueue::forget(std::uint64_t part) {
  const auto known = places_.find(part);
  if (known == places_.end()) return;
  const auto place = known->second;
  held_ -= place->bytes;
  if (!place->begun) waiting_bytes_ -= place->bytes;
  (place->begun ? begun_ : waiting_).erase(place);
  places_.erase(known);
}

}  // namespace onecopy
