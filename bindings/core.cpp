#include "bindings.hpp"

NB_MODULE(_core, module) {
#ifdef Py_GIL_DISABLED  // what would be needed: docs/decisions/packaging.md
  throw nanobind::import_error(
      "onecopy does not support free-threaded interpreters, because its bindings rely on the GIL: use an "
      "interpreter without 't' in its version");
#endif
  // The classes belong to one interpreter; another interpreter would use them without their GIL.
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    throw nanobind::import_error(
        "onecopy cannot be used in a sub-interpreter: import it in the main interpreter or in another process");
  module.doc() =
      "The compiled module of onecopy. Use the package's other modules instead: this one may change without notice.";
  // Objects that a running thread holds at the interpreter's end are not leaks: the warning about them is disabled.
  nanobind::set_leak_warnings(false);
  using namespace onecopy::bindings;
  bind_base(module);
  bind_files(module);
  bind_owned_arrays(module);
  bind_store(module);
  bind_page_cache(module);
  bind_processes(module);
  bind_formats(module);
  bind_arrays(module);
  bind_scratch(module);
  bind_records(module);
  bind_record_builder(module);
}
