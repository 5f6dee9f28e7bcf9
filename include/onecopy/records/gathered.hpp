// Some rows of a node, copied out with everything below them: a separate node with its own memory.
//
// It owns the copied bytes, and refers to types and names of the file. Threads: any number may read.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "onecopy/records/node.hpp"
#include "onecopy/records/take.hpp"

namespace onecopy::records {

class Gathered {
 public:
  // Throws FormatError if `node` is damaged, or if its lengths exceed `bytes` of the file. Its types and names are not
  // copied: the file must stay open.
  Gathered(const Node& node, Places places, std::uint64_t file_bytes);

  const Node& node() const& noexcept ONECOPY_LIFETIMEBOUND { return node_; }
  const Node& node() const&& = delete;

 private:
  Node gather(const Node& node, Places places);
  Bits gather_bits(const Bits& from, Places places);
  Numbers gather_numbers(const Numbers& from, Places places, std::uint64_t per_place = 1);
  std::uint64_t gather_offsets(const Node& from, Places places, Node& to);
  void gather_choice(const Node& from, Places places, Node& to);
  std::span<std::byte> room(std::uint64_t bytes);

  std::uint64_t file_bytes_;
  std::vector<std::vector<std::byte>> memory_;
  Node node_;
};

}  // namespace onecopy::records
