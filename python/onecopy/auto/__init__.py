"""Programs that are not edited hold one copy: the calls with which frameworks load big files map them instead.

    onecopy run -- gunicorn --workers 8 app:app     # a program with all its processes, no line edited
    import onecopy.auto                             # or one line at its start

From then on these calls share what they load with all processes of the machine, and return what they always return:

* ``torch.nn.Module.load_state_dict``: parameters and buffers keep their identity, and move to a mapping of the file
  that the given tensors are on. ``safetensors.torch.load_file`` returns such tensors.
* ``torch.load`` of files of ``torch.save``: mapped by torch (``mmap=True``).
* ``numpy.load`` of ``.npy`` files, and of arrays in ``.npz`` files that are aligned and not compressed.
* ``safetensors.safe_open(framework="np")`` and ``safetensors.numpy.load_file``.
* ``joblib.load`` of files that are not compressed.
* ``from_pretrained`` of transformers, where the dtype of the file is kept or cast; casts are made once per machine.
* ``onnxruntime.InferenceSession`` of models with 16 MiB of weights and more: prepacked once per machine.

All mappings are copy-on-write: code may write to what it loaded, the written pages become private to its process, and
no file changes. A call that cannot be shared exactly is made as without this module, and `calls` has the reason:
another device or dtype, data that was changed after it was loaded, a network file system. Files below 1 MiB are read.

**When not to use it.** Where another program writes to the files in place while they are in use (``cp`` onto them does;
``mv`` and atomic writers do not): the mapped data changes with the file, and a truncated file ends the process
(SIGBUS). Writes by the program itself are recognized: the file is replaced, and what is mapped stays as it was.

``ONECOPY_AUTO=0`` in the environment switches the module off.
"""

from onecopy.auto import hooks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onecopy.runs.call_log import Call as Call
    from onecopy.runs.call_log import calls as calls

__all__ = ["Call", "calls"]

hooks.install()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:  # `onecopy run` imports this module in each process: nothing else is loaded
        if name in __all__:
            from onecopy.runs import call_log

            return getattr(call_log, name)
        raise AttributeError(f"module 'onecopy.auto' has no attribute {name!r}")
