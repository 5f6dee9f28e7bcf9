// Releasing and acquiring the GIL.
//
// While the interpreter shuts down, CPython before 3.14 ends a thread that acquires the GIL by pthread_exit, which
// unwinds its stack: through destructors that touch Python objects without the GIL, and through noexcept functions,
// which ends the process (SIGABRT). A daemon thread that warms a file is enough for that. The code that acquires the
// GIL here catches the unwinding, and waits for the end of the process, as 3.14 does.
#pragma once

#include <nanobind/nanobind.h>

#include <exception>

namespace onecopy::bindings {

[[noreturn]] void wait_for_the_end() noexcept;

// Calls a function that may run Python code or acquire the GIL. Exceptions pass through, except the unwinding.
template <class Call>
auto in_python(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (std::exception&) {
    throw;
  } catch (...) {  // forced unwinding of the thread: an exception without a C++ type
    wait_for_the_end();
  }
}

// Throws what an exception translator is given; for translators. The unwinding, which has no exception, ends here too,
// wherever it came from.
inline void rethrow(const std::exception_ptr& pointer) {
  if (pointer == nullptr) wait_for_the_end();
  std::rethrow_exception(pointer);
}

// Looks for signals in the main thread, which alone handles them: throws KeyboardInterrupt as nb::python_error. For the
// thread that has released the GIL.
void poll_signals();

// The GIL held.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

// Whether this thread has the GIL. PyGILState_Check says yes in every thread once a sub-interpreter has existed, and
// CPython 3.11 has one current thread state for all threads: so it is compared with this thread's own.
inline bool has_gil() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  const PyThreadState* const current = PyThreadState_GetUnchecked();
#else
  const PyThreadState* const current = _PyThreadState_UncheckedGet();
#endif
  return current != nullptr && current == PyGILState_GetThisThreadState();
}

class ReleaseGil {
 public:
  ReleaseGil() noexcept : state_(PyEval_SaveThread()) {}
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;
  ~ReleaseGil() {
    in_python([this] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* state_;
};

class AcquireGil {
 public:
  AcquireGil() : state_(in_python([] { return PyGILState_Ensure(); })) {}
  AcquireGil(const AcquireGil&) = delete;
  AcquireGil& operator=(const AcquireGil&) = delete;
  ~AcquireGil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_;
};

}  // namespace onecopy::bindings
