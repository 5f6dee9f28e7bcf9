// The contents of a pickle as inert values: nothing in it was called, imported or built.
//
// Values are numbered. Values without a use here (floats, large integers, bytes, sets) share one value without content.
// Lists and dicts can contain themselves, as in Python; tuples, and arguments of objects, contain only earlier values.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

namespace onecopy::pickle {

enum class Kind : std::uint8_t { none, boolean, integer, text, inert, tuple, list, dict, global, object, persistent };

using Id = std::uint32_t;

// A class or function by its name in a module.
struct Global {
  std::string_view module;
  std::string_view name;

  friend bool operator==(const Global&, const Global&) = default;
};

class Values {
 public:
  static constexpr Id none = 0;
  static constexpr Id no = 1;
  static constexpr Id yes = 2;
  static constexpr Id inert = 3;
  static constexpr Id empty = 4;  // the tuple without items

  explicit Values(std::string_view pickle);

  Id add_integer(std::int64_t integer);
  Id add_text(std::string_view part_of_the_pickle);
  Id add_tuple(std::span<const Id> items);  // one value for all empty tuples
  Id add_list() { return add({Kind::list}); }
  Id add_dict() { return add({Kind::dict}); }
  Id add_global(Global global);
  Id add_object(Id callable, Id arguments);
  Id add_persistent(Id key) { return add({Kind::persistent, 0, key}); }

  void append(Id container,
              std::span<const Id> items);  // to a list; alternating keys and values to a dict or an object

  std::size_t size() const noexcept { return values_.size(); }
  std::uint64_t memory() const noexcept {  // bytes
    return values_.size() * sizeof(Value) + (fixed_.size() + grown_) * sizeof(Id) + globals_.size() * sizeof(Global) +
           growing_.size() * bytes_of_growing;
  }
  Kind kind(Id id) const noexcept { return values_[id].kind; }
  std::int64_t integer(Id id) const noexcept { return static_cast<std::int64_t>(values_[id].number); }
  std::string_view text(Id id) const noexcept { return pickle_.substr(values_[id].number, values_[id].count); }
  Global global(Id id) const noexcept { return globals_[values_[id].number]; }
  Id callable(Id object) const noexcept { return fixed_[values_[object].number]; }
  Id arguments(Id object) const noexcept { return fixed_[values_[object].number + 1]; }
  Id key(Id persistent) const noexcept { return static_cast<Id>(values_[persistent].number); }

  // Items of a tuple or a list; of a dict, or of an object with items: a key, its value, a key, ...
  std::span<const Id> items(Id id) const noexcept;

 private:
  struct Value {
    Kind kind = Kind::none;
    std::uint32_t count = 0;   // of a text or a tuple; of what grows: its place in `growing_`, 0: nothing came
    std::uint64_t number = 0;  // an integer; where a text begins, a tuple, what an object is made from, a global
  };

  static constexpr std::uint64_t bytes_of_growing = sizeof(std::vector<Id>) + 32;  // 32: the least of an allocation

  Id add(const Value& value);

  std::string_view pickle_;
  std::deque<Value> values_;  // not a vector, which needs twice its memory when it grows
  std::vector<Id> fixed_;     // items of tuples, callable and arguments of objects
  std::vector<Global> globals_;
  std::vector<std::vector<Id>> growing_;
  std::uint64_t grown_ = 0;  // items in them
};

}  // namespace onecopy::pickle
