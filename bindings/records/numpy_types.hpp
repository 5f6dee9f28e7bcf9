// The types of numpy's arrays and scalars, without its headers, and without an import while numpy is not loaded.
#pragma once

#include <cstdint>
#include <string>

#include "bindings.hpp"

namespace onecopy::bindings {

class NumpyTypes {
 public:
  enum class Kind : std::uint8_t { none, array, scalar };  // of numpy's own types exactly, and no subclass

  struct DType {
    nb::object object;
    nb::object scalar_type;
    std::string name;  // "<f4"
    std::uint32_t item_size = 0;
    bool plain = false;  // numbers, times, texts of fixed size: no objects, structures, or types of other packages
  };

  // Checks whether numpy has been imported meanwhile.
  void find();

  Kind kind_of(PyObject* value);
  const DType& dtype_of(PyObject* value);  // valid until the next call

 private:
  nb::object ndarray_;
  nb::object generic_;
  nb::object dtype_;
  DType last_;  // most values have the same type
};

}  // namespace onecopy::bindings
