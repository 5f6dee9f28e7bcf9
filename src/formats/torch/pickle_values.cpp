#include "formats/torch/pickle_values.hpp"

namespace onecopy::pickle {

Values::Values(std::string_view pickle)
    : pickle_(pickle),
      values_{{Kind::none}, {Kind::boolean, 0, 0}, {Kind::boolean, 0, 1}, {Kind::inert}, {Kind::tuple}},
      growing_(1) {}

Id Values::add(const Value& value) {
  values_.push_back(value);
  return static_cast<Id>(values_.size() - 1);
}

Id Values::add_integer(std::int64_t integer) { return add({Kind::integer, 0, static_cast<std::uint64_t>(integer)}); }

Id Values::add_text(std::string_view part) {
  return add(
      {Kind::text, static_cast<std::uint32_t>(part.size()), static_cast<std::uint64_t>(part.data() - pickle_.data())});
}

Id Values::add_tuple(std::span<const Id> items) {
  if (items.empty()) return empty;
  const Id tuple = add({Kind::tuple, static_cast<std::uint32_t>(items.size()), fixed_.size()});
  fixed_.insert(fixed_.end(), items.begin(), items.end());
  return tuple;
}

Id Values::add_global(Global global) {
  globals_.push_back(global);
  return add({Kind::global, 0, globals_.size() - 1});
}

Id Values::add_object(Id callable, Id arguments) {
  const Id object = add({Kind::object, 0, fixed_.size()});
  fixed_.push_back(callable);
  fixed_.push_back(arguments);
  return object;
}

void Values::append(Id container, std::span<const Id> items) {
  Value& value = values_[container];
  if (value.count == 0) {
    value.count = static_cast<std::uint32_t>(growing_.size());
    growing_.emplace_back();
  }
  auto& into = growing_[value.count];
  into.insert(into.end(), items.begin(), items.end());
  grown_ += items.size();
}

std::span<const Id> Values::items(Id id) const noexcept {
  const Value& value = values_[id];
  if (value.kind == Kind::tuple) return std::span(fixed_).subspan(value.number, value.count);
  return growing_[value.count];
}

}  // namespace onecopy::pickle
