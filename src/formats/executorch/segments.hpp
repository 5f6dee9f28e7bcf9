// Segments of ExecuTorch's files: the header behind the identifier, and the list of segments in the FlatBuffer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/entry_list.hpp"
#include "formats/wire/flatbuffer.hpp"
#include "onecopy/base/bytes.hpp"

namespace onecopy::executorch {

inline constexpr std::string_view known_program = "ET12";
inline constexpr std::string_view known_flat_tensor = "FT01";

struct Area {
  std::uint64_t flatbuffer = 0;  // bytes from the start of the file, including the headers
  ByteRange data;                // of all segments
};

// Throw FormatError: parts that lie outside the file, or a header that is too short.
Area area_of_program(Bytes file);
Area area_of_flat_tensor(Bytes file);

class Segments {
 public:
  // Throws FormatError: segments that lie outside the area, or overlap.
  Segments(const flatbuffer::Vector& list, const Area& area);

  // The bytes of a segment that `user` names; throws FormatError where there is none of this number.
  ByteRange use(std::uint32_t i, std::string_view user);

  // Segments without a user, as "segment.<i>".
  void add_unused(EntryList& entries) const;

 private:
  std::vector<ByteRange> ranges_;
  std::vector<bool> used_;
};

}  // namespace onecopy::executorch
