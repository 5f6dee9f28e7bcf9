"""PyTorch on mapped memory: weights that are loaded by mapping, and datasets that workers share.

    state = oc.torch.load("model.safetensors")           # tensors on the page cache's pages; touches no data
    report = oc.torch.load_into(model, "model.safetensors")
    dataset = oc.torch.share_dataset(MyDataset(...))

`load` and `load_into` take every file that `onecopy.open` does: safetensors, torch checkpoints (no pickle is executed),
GGUF, npz, ... N processes hold one copy of what none of them writes to.

**Pages are copy-on-write** unless you ask otherwise: code that writes to a weight in place works, and the page that is
written to becomes private to its process. The file never changes. With ``unsafe_shared=True`` nothing can become
private, and a write ends the process.

**To a GPU** (``device="cuda"``) the bytes go from the mapping through two pinned buffers, while the file is read ahead.

**When not to use it.** Where the next step is a copy of this process anyway, as a cast to another dtype is. The report
of `load_into` names every weight that was copied.

torch is imported by `load` and `load_into` alone.
"""

from onecopy.integrations.torch._datasets import Attribute, ShareReport, share_dataset
from onecopy.integrations.torch._load import Copied, LoadReport, load, load_into
from onecopy.integrations.torch._upload import Upload

__all__ = ["Attribute", "Copied", "LoadReport", "ShareReport", "Upload", "load", "load_into", "share_dataset"]
