// Converts the calls in a torch checkpoint's pickle that make tensors to the positions of their elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/entry_list.hpp"
#include "formats/torch/pickle_values.hpp"
#include "formats/wire/zip.hpp"
#include "onecopy/base/bytes.hpp"

namespace onecopy::torch_zip {

// The members of a checkpoint, by their names relative to the common folder.
class Archive {
 public:
  // Throws FormatError.
  explicit Archive(Bytes file);

  const zip::Member* find(std::string_view name) const noexcept;  // null if there is none
  bool has_folder(std::string_view name) const noexcept;
  std::string_view text(const zip::Member& member) const noexcept;

 private:
  Bytes file_;
  std::vector<zip::Member> members_;  // by name
};

struct ElementType;

class TensorReader {
 public:
  TensorReader(const pickle::Values& values, const Archive& archive) noexcept : values_(values), archive_(archive) {}

  // None: the object is not a tensor with readable elements, and `why` is the reason. Throws FormatError for a tensor
  // with wrong arguments.
  std::optional<FoundArray> read(pickle::Id object, const std::string& name, std::string& why) const;

 private:
  struct Call {
    pickle::Global function;
    std::span<const pickle::Id> arguments;
  };
  struct Storage {
    const ElementType* element = nullptr;
    ByteRange bytes;
  };

  std::optional<Call> innermost(pickle::Id object) const;
  std::optional<pickle::Global> global(pickle::Id id) const noexcept;
  std::optional<FoundArray> place(const Call& call, std::size_t least, const std::string& name, std::string& why) const;
  std::optional<Storage> storage(pickle::Id id, const std::string& name, std::string& why) const;
  const zip::Member& member(std::string_view key, const std::string& name) const;
  const ElementType* own_type(pickle::Id id, const std::string& name, std::string& why) const;
  void read_axes(FoundArray& array, const Call& call) const;
  std::uint64_t count(pickle::Id id, std::string_view what, const std::string& name) const;
  std::vector<std::uint64_t> counts(pickle::Id id, std::string_view what, const std::string& name) const;
  bool is_plain(const Call& call, std::size_t least) const noexcept;

  const pickle::Values& values_;
  const Archive& archive_;
};

}  // namespace onecopy::torch_zip
