"""ONNX Runtime sessions whose weights are held once per machine, and that say what was done and prove it.

    session = oc.onnxruntime.session("model.onnx", mode="auto")
    session.run(None, {"input": batch})      # an `onnxruntime.InferenceSession`, with all that it can do
    print(session.onecopy)                   # which rung was taken and why, what is mapped, what was copied

Left alone, ONNX Runtime gives every process its own copy of most weights: it reads the file into its heap, and then
prepacks the weights of matrix products and convolutions into another copy. The rungs of the ladder:

- ``read`` (the default): ONNX Runtime, untouched.
- ``map``: the file is read through a mapping, which is gone afterwards. Less memory while the session is made; nothing
  is saved later.
- ``direct``: weights are used where they lie in the mapping, not prepacked. One copy for all processes, and the session
  is there at once; matrix products of large batches are slower (28 to 35 % at a batch of 64, measured on one model).
- ``prepacked``: prepacked weights are saved once per host, through the store, and mapped by every session. Full speed.
- ``auto``: ``prepacked`` where that was prepared; else ``read``, while a child prepacks in the background for the next
  ones. It never takes a rung that is slower than ONNX Runtime's own, and prepares nothing for less than 16 MiB of
  weights.

Where a rung cannot be had, the session is made on a lower one, and `Report.reason` says why. The options that you give
are used as they are, and not changed: the rung's own are set on a copy.

**When not to use it.** For small models (``auto`` leaves those alone for which nothing was prepacked), and where
weights go to a GPU: what is shared here is memory of the host. Custom operators that are registered in the options
cannot be copied: such a session is ``read``.

**Safety.** A mapped file that is truncated ends the process that touches it; `onecopy.guard` turns that into an error
for what onecopy maps (``direct`` of ``.onnx`` files). ONNX Runtime maps ``.ort`` files and prepacked weights itself.
"""

try:
    import onnxruntime as _engine  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "onnxruntime":
        raise
    raise ModuleNotFoundError(
        "oc.onnxruntime needs ONNX Runtime: pip install 'onecopy[onnxruntime]'", name="onnxruntime"
    ) from None

from onecopy.integrations.onnxruntime._report import Copied, Latency, Mapped, Report
from onecopy.integrations.onnxruntime._session import Mode, Session, session

__all__ = ["Copied", "Latency", "Mapped", "Mode", "Report", "Session", "session"]
