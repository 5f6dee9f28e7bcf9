// Lifetimes of what Python objects share with the code that uses it. tools/check_lifetimes.py refuses others.
//
// A Python object can give up what it holds at any moment: close() is called by another thread while the GIL is
// released, or by a finalizer that the garbage collector runs wherever a call makes Python objects. So nothing behind a
// handle is used without a Pin, a share of the ownership: it cannot be dropped or closed before the Pin ends.
//
//     const auto file = self.pin();                                          // throws ValueError when closed
//     return without_gil(file, [](const ArrayFile& pinned) { ... });
#pragma once

#include <nanobind/nanobind.h>

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gil.hpp"

namespace onecopy::bindings {

// A type with Python objects in it is destroyed under the GIL; its large members are WithoutGil.
template <class T>
concept HoldsPython = requires { requires T::holds_python; };

// Calls what may take long (freeing gigabytes, waiting for a thread) without the GIL, from a thread with or without it.
template <class Call>
void release_gil_and(const Call& call) noexcept {
  std::optional<ReleaseGil> release;
  if (has_gil()) release.emplace();
  call();
}

template <class T>
class Pin {
 public:
  Pin() = default;
  Pin(std::shared_ptr<T> owner) noexcept : owner_(std::move(owner)) {}  // NOLINT: Shared makes the owners

  T& operator*() const& noexcept { return *owner_; }
  T& operator*() const&& = delete;
  T* operator->() const& noexcept { return owner_.get(); }
  T* operator->() const&& = delete;

  explicit operator bool() const noexcept { return owner_ != nullptr; }

  // A Pin of what belongs to it.
  template <class Part>
  Pin<Part> part(Part* belonging) const noexcept {
    return std::shared_ptr<Part>(owner_, belonging);
  }

  const std::shared_ptr<T>& owner() const& noexcept { return owner_; }  // for the core, which shares it
  std::shared_ptr<T> owner() && noexcept { return std::move(owner_); }

 private:
  std::shared_ptr<T> owner_;
};

[[noreturn]] void throw_closed(const std::string& text);  // ValueError

template <class T>
class Shared {
 public:
  explicit Shared(std::shared_ptr<T> owner) : owner_(destroyed_rightly(std::move(owner))) {}
  Shared(Pin<T> pinned) noexcept : owner_(std::move(pinned).owner()) {}  // NOLINT: another handle of the same

  Pin<T> pin(const char* closed = "the file is closed") const {
    if (!owner_) throw_closed(closed + path_);
    return owner_;
  }
  void close() noexcept { owner_.reset(); }
  // Later errors name the file whose path `path_of` returns.
  template <class PathOf>
  void close(const PathOf& path_of) {
    if (owner_) path_ = ": " + path_of(*owner_);
    close();
  }
  bool closed() const noexcept { return owner_ == nullptr; }

 private:
  static std::shared_ptr<T> destroyed_rightly(std::shared_ptr<T> owner) {
    if constexpr (HoldsPython<T>) {
      return owner;
    } else {
      T* const value = owner.get();
      return {value, [owner = std::move(owner)](T* /*unused*/) mutable noexcept {
                release_gil_and([&owner] { owner.reset(); });
              }};
    }
  }

  std::shared_ptr<T> owner_;  // null: closed
  std::string path_;
};

template <class T, class... Arguments>
Shared<T> make_shared(Arguments&&... arguments) {
  return Shared<T>(std::make_shared<T>(std::forward<Arguments>(arguments)...));
}

// The result of call(*pinned), without the GIL.
template <class T, class Call>
auto without_gil(const Pin<T>& pinned, const Call& call) -> decltype(call(*pinned)) {
  const ReleaseGil release;
  return call(*pinned);
}

// A property of what a handle holds: get(*pinned).
template <auto get, class Handle>
auto of_pinned(const Handle& self) {
  const auto pinned = self.pin();
  return std::invoke(get, *pinned);
}

// A value of one owner, which is destroyed without the GIL.
template <class T>
class WithoutGil {
 public:
  template <class... Arguments>
    requires std::constructible_from<T, Arguments...>
  explicit WithoutGil(Arguments&&... arguments) : value_(std::in_place, std::forward<Arguments>(arguments)...) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() {
    release_gil_and([this] { value_.reset(); });
  }

  // NOLINTBEGIN(bugprone-unchecked-optional-access): empty only while it is destroyed
  T& operator*() noexcept { return *value_; }
  const T& operator*() const noexcept { return *value_; }
  T* operator->() noexcept { return &*value_; }
  const T* operator->() const noexcept { return &*value_; }
  // NOLINTEND(bugprone-unchecked-optional-access)

 private:
  std::optional<T> value_;
};

}  // namespace onecopy::bindings
