"""Share the data that frameworks load from big files among all processes of unmodified programs.

    onecopy run -- gunicorn --workers 8 app:app     # all processes of an unmodified program import onecopy.auto
    import onecopy.auto                             # or add this line at the start of a program

These calls then share the loaded data with all processes on the machine, and return the same types as before:

* ``torch.nn.Module.load_state_dict``: parameters and buffers keep their identity, and use a snapshot of the file from
  which the given tensors were loaded, for example with ``safetensors.torch.load_file``.
* ``torch.load`` for files written by ``torch.save``.
* ``numpy.load`` and ``numpy.fromfile``; in ``.npz`` files, only aligned, uncompressed arrays are shared.
* ``safetensors.numpy.load_file``.
* ``joblib.load`` for uncompressed files.
* ``from_pretrained`` in transformers, with the dtype of the file, or with a cast that is computed once per machine.
* ``onnxruntime.InferenceSession`` for models with at least 16 MiB of weights, which are prepacked once per machine, if
  the distribution onecopy-onnxruntime is installed.

Loaded data is copy-on-write memory of a snapshot (`onecopy.store.snapshots`): code may write to it, written pages
become private to the process, and files do not change. Later writes to the file do not change loaded data. If a
call's data cannot be shared exactly, the original function runs, and `calls` returns the reason, such as a cast, data
that was changed after it was loaded, or a file in memory (tmpfs). Files smaller than 1 MiB are read as usual.

**When not to use it.** If each file is loaded once, by one process: a snapshot then costs a copy and saves nothing.

Setting ``ONECOPY_AUTO=0`` in the environment disables the module.
"""

from onecopy.base import lazy
from onecopy.run import hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onecopy.run.call_log import Call, calls

__all__ = ["Call", "calls"]

hooks.install()


if not TYPE_CHECKING:  # `onecopy run` imports this module in each process, so it loads nothing else
    __getattr__ = lazy.attributes(__name__, {"onecopy.run.call_log": ("Call", "calls")})
