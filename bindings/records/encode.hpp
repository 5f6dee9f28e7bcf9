// A Python value into a column. One of the two places where a binding loops over data (the other is decoder.hpp):
// looking into Python objects is what the time goes into, and only CPython's API can.
//
// Types are compared exactly, so that what comes back is what went in: a subclass of int is no int. What is none of the
// plain types goes to the registry, or is refused with the path of the value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bindings.hpp"
#include "onecopy/records/column.hpp"

namespace onecopy::bindings {

// Where in a row a value is. A chain on the stack, from the inside out: it becomes text where something is wrong, and
// costs nothing before.
struct Path {
  enum class Step : std::uint8_t { index, key, key_itself, stand_in };
  static constexpr int deepest = 60;

  const Path* above = nullptr;
  PyObject* container = nullptr;  // borrowed; of the first: none
  Step step = Step::index;
  int depth = 0;
  Py_ssize_t number = 0;    // in a list; of a key among the keys
  PyObject* key = nullptr;  // borrowed

  std::string text() const;  // [12].bbox["x y"][3]
  bool contains(PyObject* object) const noexcept;
};

class Encoder {
 public:
  // `registry` is called with what is no plain value, and returns (name, plain value) or None.
  explicit Encoder(nb::handle registry) : registry_(registry) {}

  // Throws python_error: NotShareable, or what the registry raised, with a note of the path; FormatError and OsError.
  void encode(records::Column& column, PyObject* value, const Path& path);

 private:
  void integer(records::Column& column, PyObject* value);
  void text(records::Column& column, PyObject* value);
  void list(records::Column& column, PyObject* value, const Path& path);
  void tuple(records::Column& column, PyObject* value, const Path& path);
  void dict(records::Column& column, PyObject* value, const Path& path);
  void record(records::Column& column, PyObject* value, Path here);
  void map(records::Column& column, PyObject* value, Path here);
  bool numpy_value(records::Column& column, PyObject* value, const Path& path);
  void array(records::Column& column, nb::handle value, bool scalar);
  void extension(records::Column& column, PyObject* value, const Path& path);

  bool knows_numpy();
  bool is_text_keyed(PyObject* dict);  // then the keys are in keys_

  struct DType {
    nb::object object;
    std::string name;
    std::uint32_t item_size = 0;
    char kind = 0;
  };
  const DType& dtype_of(nb::handle value);

  nb::handle registry_;
  std::vector<std::string_view> keys_;  // of the dict that is being looked at
  std::vector<std::uint64_t> shape_;
  nb::object ndarray_;  // types of numpy; none as long as nobody has imported it
  nb::object generic_;
  DType dtype_;  // the last one, as most are alike
};

}  // namespace onecopy::bindings
