// The size of a value in a stream, and of each of its fields.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "onecopy/structs/streams/wire_format.hpp"
#include "onecopy/structs/traits.hpp"

namespace onecopy::streams {

// The name of a type as it is written in C++.
std::string demangle(const char* mangled_name);

// Fields have the names given to visit(field, "name"), or those of their types. The elements of a sequence are summed
// in one node, so that the tree is as large as the type, not as the value.
class sizer {
 public:
  struct node {
    std::size_t bytes = 0;  // with all below
    std::size_t depth = 0;
    std::string name;
    std::size_t count = 0;  // number of values that were summed here
    std::vector<node> children;
    std::size_t next = 0;  // the child that is expected next
  };

  explicit sizer(std::string root_name = {}) { root_.name = std::move(root_name), root_.count = 1; }
  sizer(const sizer&) = delete;  // it points into itself
  sizer& operator=(const sizer&) = delete;

  template <class T>
  void visit(T& value, std::string_view name = {}) {
    if (&root_ == current_ && name.empty() && has_fields<std::remove_const_t<T>>)
      return WireFormat::visit(*this, value);  // its fields are the root's
    const Inside inside(*this, name.empty() ? label<T>() : name);
    WireFormat::visit(*this, value);
  }

  // A line for each node; `device` is anything that takes << of text and numbers.
  template <class Device>
  void print(Device& device) const {
    print(root_, bytes(), device);
  }

  template <class Device>
  void print(const node& part, std::size_t total_bytes, Device& device) const {
    const double percent =
        total_bytes == 0 ? 0 : 100.0 * static_cast<double>(part.bytes) / static_cast<double>(total_bytes);
    device << std::string(part.depth * 4, ' ') << "'" << part.name << "' - bytes = " << part.bytes << " (" << percent
           << "%)";
    if (part.count > 1) device << " in " << part.count;
    device << "\n";
    for (const auto& child : part.children) print(child, total_bytes, device);
  }

  std::size_t bytes() const noexcept { return root_.bytes; }
  const node& root() const& noexcept { return root_; }
  const node& root() const&& = delete;

 private:
  friend struct WireFormat;

  struct Inside {
    Inside(sizer& its, std::string_view name) : tree(its), parent(its.current_), before(its.enter(name)) {}
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() {
      parent->bytes += tree.current_->bytes - before;
      tree.current_ = parent;
    }
    sizer& tree;
    node* parent;
    std::size_t before;
  };

  template <class T>
  static constexpr bool has_fields = !is_pod_v<T> && !is_sequence_v<T> && !is_optional_v<T>;

  template <class T>
  static std::string_view label() {
    static const std::string name = demangle(typeid(T).name());
    return name;
  }

  template <class T>
  void plain(const T& /*value*/) {
    current_->bytes += sizeof(T);
  }

  template <class Optional>
  void optional(Optional& value) {
    current_->bytes += 1;
    if (value) visit(*value);
  }

  template <class Sequence>
  void sequence(Sequence& value) {
    using T = std::ranges::range_value_t<Sequence>;
    current_->bytes += sizeof(std::uint64_t);
    if constexpr (is_pod_v<T>) {
      current_->bytes += value.size() * sizeof(T);
    } else {
      for (auto& element : value) {
        current_->next = 0;
        const Inside inside(*this, label<T>());
        WireFormat::visit(*this, element);
      }
    }
  }

  std::size_t enter(std::string_view name);  // returns the bytes that are there already

  node root_;
  node* current_ = &root_;
};

}  // namespace onecopy::streams
