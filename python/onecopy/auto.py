"""Unmodified programs hold one copy: what frameworks load from big files is memory of one snapshot for all processes.

    onecopy run -- gunicorn --workers 8 app:app     # a program with all its processes, no line edited
    import onecopy.auto                             # or one line at its start

From then on these calls share what they load with all processes of the machine, and return what they always return:

* ``torch.nn.Module.load_state_dict``: parameters and buffers keep their identity, and move to a snapshot of the file
  that the given tensors are on. ``safetensors.torch.load_file`` returns such tensors.
* ``torch.load`` of files of ``torch.save``.
* ``numpy.load`` and ``numpy.fromfile``; arrays in ``.npz`` files that are aligned and not compressed.
* ``safetensors.numpy.load_file``.
* ``joblib.load`` of files that are not compressed.
* ``from_pretrained`` of transformers, where the dtype of the file is kept or cast; casts are made once per machine.
* ``onnxruntime.InferenceSession`` of models with 16 MiB of weights and more: prepacked once per machine.

What is loaded is copy-on-write memory of a snapshot (`onecopy.store.snapshots`): code may write to it, written pages
become private to the process, and no file changes. Writes to the file change nothing that was loaded. A call that
cannot be shared exactly is made as without this module, and `calls` has the reason: a cast, data that was changed after
it was loaded, a file in memory (tmpfs). Files below 1 MiB are read.

**When not to use it.** Where each file is loaded once, by one process: a snapshot costs a copy, and saves none.

``ONECOPY_AUTO=0`` in the environment switches the module off.
"""

from onecopy.base import lazy
from onecopy.run import hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onecopy.run.call_log import Call, calls

__all__ = ["Call", "calls"]

hooks.install()


if not TYPE_CHECKING:  # `onecopy run` imports this module in each process: nothing else is loaded
    __getattr__ = lazy.attributes(__name__, {"onecopy.run.call_log": ("Call", "calls")})
