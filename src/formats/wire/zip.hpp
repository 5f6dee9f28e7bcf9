// Where the members of a zip archive lie, from its central directory: nothing is unpacked. Names are copied, because
// another process may change the file while they are sorted.
//
// Strict, because an archive that two readers interpret differently can deceive one of them: the directory ends where
// its end record begins, each member's own header agrees with the directory, members lie before the directory and do
// not overlap, names are distinct, and there is one disk and no encryption. Checksums of the contents are not compared,
// because that would read the whole file.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "onecopy/base/bytes.hpp"
#include "onecopy/base/error.hpp"

namespace onecopy::zip {

enum class Method : std::uint8_t { stored, deflated };

struct Member {
  std::string name;  // of the directory: UTF-8, not empty, no NUL
  Method method = Method::stored;
  ByteRange data;   // as it lies in the file
  ByteRange whole;  // with the member's header before it
};

// The name in the header that an archive begins with; empty when the file does not begin with a member of an archive.
std::string_view first_name(Bytes file) noexcept;

// In the order of the directory. Throws FormatError.
std::vector<Member> members(Bytes file);

// Whether an archive has a member with such a name. If its directory cannot be read, its first member decides.
template <class Predicate>
bool any_name(Bytes file, const Predicate& predicate) {
  const auto first = first_name(file);
  if (first.empty() || predicate(first)) return !first.empty();
  try {
    return std::ranges::any_of(members(file), predicate, &Member::name);
  } catch (const FormatError&) {
    return false;
  }
}

}  // namespace onecopy::zip
