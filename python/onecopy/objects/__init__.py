"""Any Python object in a file whose arrays are mapped: `save_object`, `load_object` and `share_object`.

    oc.save_object("knn.oc", model)                       # a scikit-learn model, a DataFrame, a dataclass of arrays ...
    model = oc.load_object("knn.oc", trusted=True)        # arrays are views of the file, one copy per machine
    model = oc.share_object(train, key=oc.file_key(path)) # built once per machine, then loaded by every process

The file is a valid safetensors file. The buffers of the object (numpy arrays, CPU tensors of torch, columns of pandas,
buffers of Arrow) are arrays of it with names such as "coef_", which `onecopy.open` shows without running anything. The
rest, usually a few kilobytes, is a pickle in the array "object.pickle".

**Trust.** A pickle is a program: loading one runs whatever its author wrote. Only `load_object` and `share_object` do
that: the first with ``trusted=True`` alone, the second for files in a store, which belongs to this user alone.

**When not to use it.** For rows of plain Python values: `onecopy.share` keeps them in the file as well, while a pickle
makes all of them in each process. For weights alone: `onecopy.save`.
"""

from __future__ import annotations

from onecopy.objects.loading import Copied, LoadReport, load_object, share_object
from onecopy.objects.pickling import save_object

__all__ = ["Copied", "LoadReport", "load_object", "save_object", "share_object"]
