"""ONNX Runtime sessions whose weights are in memory once per machine, with a report on each session.

    session = oc.onnxruntime.session("model.onnx", mode="auto")
    session.run(None, {"input": batch})      # an `onnxruntime.InferenceSession`, with all its methods
    print(session.onecopy)                   # mode and reason, mapped files, copied weights

The distribution onecopy-onnxruntime installs this package as ``onecopy_onnxruntime``, which is also available as
``oc.onnxruntime``.

By default, ONNX Runtime gives every process its own copy of most weights: it reads the file into its heap, and prepacks
the weights of matrix products and convolutions into another copy. The modes:

- ``read`` (the default): ONNX Runtime works as usual.
- ``direct``: weights are used directly in the mapping, without prepacking. All processes share one copy, and the
  session is ready in milliseconds, but matrix products with large batches are slower (28 to 35 % at batch size 64).
- ``prepacked``: prepacked weights are saved once per machine in the store, and mapped by every session, at full speed.
- ``auto``: ``prepacked`` if prepacked weights exist, otherwise ``read``, while a child process prepacks for later
  sessions. It never uses a mode that is slower than ``read``, and does not prepack less than 16 MiB of weights.

If a mode is unavailable, the session is created in mode ``read``, and `Report.reason` states why. The caller's
session options are not changed: a mode's entries are set in a copy.

**When not to use it.** For small models (``auto`` does not prepack them), and for weights on a GPU, because only CPU
memory is shared. Options with registered custom operators cannot be copied, so sessions with them use ``read``.

**Safety.** SIGBUS ends a process that reads a truncated mapping; `onecopy.files.guard` turns that into an error for
files that onecopy maps (``direct`` with ``.onnx``). ONNX Runtime maps ``.ort`` files and prepacked weights itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    import onnxruntime as _engine  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "onnxruntime":
        raise
    raise ModuleNotFoundError(
        "oc.onnxruntime requires ONNX Runtime: pip install 'onecopy[onnxruntime]'", name="onnxruntime"
    ) from None

from onecopy.base import lazy

if TYPE_CHECKING:
    from onecopy.base.load_report import Copied
    from onecopy_onnxruntime.sessions import Mapped, Mode, Report, Session, session

__all__ = ["Copied", "Mapped", "Mode", "Report", "Session", "session"]

if not TYPE_CHECKING:  # a type checker would accept every attribute name
    __getattr__ = lazy.attributes(
        __name__,
        {"onecopy.base.load_report": ("Copied",), "sessions": ("Mapped", "Mode", "Report", "Session", "session")},
    )
