"""PyTorch with mapped memory: load weights by mapping, and share datasets between workers.

    state = oc.torch.load("model.safetensors")           # tensors in mapped pages; reads no data
    report = oc.torch.load_into(model, "model.safetensors")
    dataset = oc.torch.share_dataset(MyDataset(...))

`load` and `load_into` read all files that `onecopy.open` reads: safetensors, torch checkpoints (no pickle is executed),
GGUF, npz, ... All processes share one copy of the pages that none of them writes to.

**Copy-on-write.** By default, code may write to a weight in place: the written page becomes private to its process, and
the file never changes. With ``unsafe_shared=True``, no page becomes private, and any write ends the process (SIGSEGV).

**GPU.** With ``device="cuda"``, torch copies the weights from the mapping. During the copy, a file in the page cache is
registered with the driver as pinned memory; other files are prefetched. To copy repeatedly, use ``oc.open(path,
pinned=True)``.

**When not to use it.** Mapping has no advantage if the weights are copied afterwards anyway, for example by a cast to
another dtype. The report of `load_into` lists all copied weights.

torch is imported when `load` or `load_into` is called, not when this module is imported.
"""

from onecopy.base import lazy

TYPE_CHECKING = False  # typing takes longer to import than the rest of this module

if TYPE_CHECKING:
    from onecopy.base.load_report import Copied, LoadReport
    from onecopy.frameworks.torch._load import load, load_into
    from onecopy_records.torch_datasets import Attribute, ShareReport, share_dataset
else:
    _HOMES = {
        "_load": ("load", "load_into"),
        "onecopy.base.load_report": ("Copied", "LoadReport"),
        "onecopy_records.torch_datasets": ("Attribute", "ShareReport", "share_dataset"),
    }
    __getattr__ = lazy.attributes(__name__, _HOMES)

__all__ = ["Attribute", "Copied", "LoadReport", "ShareReport", "load", "load_into", "share_dataset"]
