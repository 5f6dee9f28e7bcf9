// bindings: the C++ modules for Python. Conversions and lifetimes only: no algorithms, no loops over data.
//
// Each module has one file. The public interface is the Python package; these bindings are for the package only.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "onecopy/base/error.hpp"
#include "onecopy/files/mapping.hpp"
#include "shared.hpp"

namespace onecopy::bindings {

namespace nb = nanobind;

void bind_base(nb::module_& module);
void bind_files(nb::module_& module);
void bind_owned_arrays(nb::module_& module);
void bind_store(nb::module_& module);
void bind_page_cache(nb::module_& module);
void bind_processes(const nb::module_& module);
void bind_formats(nb::module_& module);
void bind_arrays(nb::module_& module);
void bind_scratch(nb::module_& module);
void bind_records(nb::module_& module);
void bind_record_builder(const nb::module_& module);

// The object of a new reference; throws Python's error for null.
inline nb::object owned(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

nb::object error_class(const char* name);  // of onecopy.errors
// An instance of that class, a subclass of FormatError, with the kind, path and offset of `error`.
nb::object format_error(const char* name, const FormatError& error);
nb::object text_of(std::string_view text);  // as Python decodes paths: bytes that are not UTF-8 become surrogates

// "WarmReport(bytes=1048576, filled=0, ...)": the fields of a report, in their order.
nb::str repr_of(nb::handle report);

// Sets Python's error from the current exception: for type slots, where nanobind does not translate.
void set_error() noexcept;

// What CPython calls for `function`: exceptions become Python's errors, and are reported by null or -1.
template <auto function>
struct Guarded;

template <class Result, class... Arguments, Result (*function)(Arguments...)>
struct Guarded<function> {
  static constexpr bool gives_object = std::is_base_of_v<nb::object, Result>;

  static std::conditional_t<gives_object, PyObject*, Result> call(Arguments... arguments) noexcept {
    try {
      if constexpr (gives_object)
        return function(arguments...).release().ptr();
      else
        return function(arguments...);
    } catch (...) {
      set_error();
      if constexpr (gives_object || std::is_pointer_v<Result>)
        return nullptr;
      else
        return -1;
    }
  }
};

// Entries of the table that a type is made of.
template <class Function>
PyType_Slot slot(int number, Function* function) noexcept {
  return {number, reinterpret_cast<void*>(function)};  // NOLINT: as CPython wants it
}

template <auto function>
PyType_Slot slot(int number) noexcept {
  return slot(number, &Guarded<function>::call);
}

// A value of a built-in type that contains no other.
inline bool is_leaf(PyObject* value) noexcept {
  const PyTypeObject* type = Py_TYPE(value);
  return type == &PyFloat_Type || type == &PyLong_Type || type == &PyUnicode_Type || value == Py_None ||
         type == &PyBool_Type || type == &PyBytes_Type;
}

// (device, inode, size, mtime in ns), as it travels in pickles.
using IdentityTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::int64_t>;
using RangeTuple = std::pair<std::uint64_t, std::uint64_t>;  // offset, length

IdentityTuple to_tuple(const FileIdentity& identity);
FileIdentity to_identity(const IdentityTuple& tuple);
using RangeTuples = std::optional<std::vector<RangeTuple>>;  // None: everything
std::optional<std::vector<ByteRange>> to_ranges(const RangeTuples& tuples);

// Counts the views that Python holds: every view has a share of one token.
class ViewCount {
 public:
  using Token = std::shared_ptr<const char>;

  Token token() const { return token_; }
  long views() const noexcept { return token_.use_count() - 1; }

 private:
  Token token_ = std::make_shared<const char>('\0');
};

// Memory that Python accesses through the buffer protocol. Keeps the mapping alive when the file object is closed.
struct View {
  Pin<const Mapping> mapping;
  Bytes bytes;
  ViewCount::Token token;

  // The buffer protocol has no const; is_read_only() says it instead.
  std::span<std::byte> memory() const noexcept {
    return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
  bool is_read_only() const noexcept { return !mapping->private_pages(); }
};

// read(bytes of the mapping). Errors name the path; where bytes were lost, which then are zeros, throws DataLost.
template <class Read>
auto read_whole(const Mapping& mapping, const Read& read) {
  try {
    auto made = read(mapping.bytes());
    expect_whole(mapping);
    return made;
  } catch (const FormatError& error) {
    expect_whole(mapping);
    throw error.with_path(mapping.path());
  }
}

// A mapping that can be closed while views of it live on.
class MappingHandle {
 public:
  explicit MappingHandle(Shared<const Mapping> mapping) : mapping_(std::move(mapping)) {}

  Pin<const Mapping> pin() const { return mapping_.pin(); }
  void close() {
    mapping_.close([](const Mapping& file) { return file.path(); });
  }
  bool closed() const noexcept { return mapping_.closed(); }
  View view(ByteRange range) const;
  long views() const noexcept { return count_.views(); }

 private:
  Shared<const Mapping> mapping_;
  ViewCount count_;
};

}  // namespace onecopy::bindings
