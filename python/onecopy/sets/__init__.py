"""Several files as one: a model in shards with their index, or an ONNX model whose data lies in other files.

    import onecopy as oc

    model = oc.open("model.safetensors.index.json")   # 100 shards: one read-only mapping from names to arrays
    model.warm()                                      # all of them, one after the other, with one report

`onecopy.open` gives an `ArraySet` for a JSON text with a ``weight_map`` (names to files, as Hugging Face writes it; the
shards may be of any format that `onecopy.open` knows) and for ONNX models with external data. All files are opened at
once, a hundred of them in some milliseconds, so that what is missing or damaged is told by the opening and not by a
training step later.

**What a hostile set can do.** Be refused, with a `SetError` (a `FormatError`) or an OSError that names the path and the
reason. A file must lie in the folder of the index, or, where the index itself is a link (as in the cache of
huggingface_hub), in the folder that it leads to; links that lead elsewhere are refused.
"""

from __future__ import annotations

from onecopy.sets.array_set import ArraySet
from onecopy.sets.members import SetError

__all__ = ["ArraySet", "SetError"]
