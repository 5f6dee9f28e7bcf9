// Counts the keys of a dict by hash.
//
// Python's hashes of long integers and tuples have no seed: a file can have any number of keys with one hash, and a
// dict of them takes quadratic time. Integers of 64 bits and reals cannot collide often, hashes of text have a seed,
// and those of registered types belong to the program.
#pragma once

#include <cstddef>
#include <unordered_map>

#include "bindings.hpp"

namespace onecopy::bindings {

class KeyHashes {
 public:
  static constexpr unsigned most = 256;

  // False: more than `most` keys have the hash of this one. The dict refuses a key that cannot be hashed.
  bool count(PyObject* key) {
    if (PyTuple_CheckExact(key) == 0 && !is_long(key)) return true;
    const Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1) PyErr_Clear();
    return ++seen_[hash] <= most || hash == -1;
  }

 private:
  static bool is_long(PyObject* key) {
    int overflow = 0;
    return PyLong_CheckExact(key) != 0 && PyLong_AsLongLongAndOverflow(key, &overflow) == -1 && overflow != 0;
  }

  struct Seeded {  // as Python's hashes of text are: chosen hashes would collide in this table too
    std::size_t operator()(Py_hash_t hash) const noexcept {
      static const Py_hash_t seed = PyObject_Hash(nb::str("onecopy").ptr());
      return static_cast<std::size_t>(hash ^ seed) * std::size_t{0x9E3779B97F4A7C15} >> 8U;
    }
  };

  std::unordered_map<Py_hash_t, unsigned, Seeded> seen_;
};

}  // namespace onecopy::bindings
