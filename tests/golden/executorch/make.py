"""Write small.pte and small.ptd with ExecuTorch's own serialisers, and say what is in them.

The programs have no methods that could run: only what says where data lies.
"""

import sys
from pathlib import Path

import torch
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir._serialize._program import PTEFile, serialize_pte_binary
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.exir.schema import Buffer, ContainerMetadata, ExecutionPlan, Program, ScalarType
from executorch.exir.tensor_layout import TensorLayout
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer

folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)


def program() -> bytes:
    """Return a program with two constants, a tensor that changes, and two names for one of two blobs."""
    plan = ExecutionPlan("forward", ContainerMetadata("", ""), [], [], [], [], [], [], [0])
    store = NamedDataStore()
    store.add_named_data("weights", b"named data", alignment=16)
    store.add_named_data("the same", b"named data", alignment=16)
    store.add_named_data("other", bytes(range(20)))
    return bytes(
        serialize_pte_binary(
            PTEFile(
                program=Program(0, [plan], [Buffer(b""), Buffer(b"first constant"), Buffer(b"second")], [], [], None),
                mutable_data=[Buffer(b""), Buffer(b"changes")],
                named_data=store.get_named_data_store_output(),
            )
        )
    )


def data() -> bytes:
    """Return two tensors, one of them with its channels last, and a blob without a layout."""
    plain = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    last = torch.arange(48, dtype=torch.int16).reshape(2, 2, 3, 4).to(memory_format=torch.channels_last)
    raw = last.permute(0, 2, 3, 1).contiguous()
    buffers = [plain.numpy().tobytes(), raw.numpy().tobytes(), b"a blob"]
    named = {
        "plain": DataEntry(0, 16, TensorLayout(ScalarType.FLOAT, [2, 3], [0, 1])),
        "channels_last": DataEntry(1, 16, TensorLayout(ScalarType.SHORT, [2, 2, 3, 4], [0, 2, 3, 1])),
        "blob": DataEntry(2, 16, None),
    }
    return bytes(FlatTensorSerializer().serialize(DataPayload(buffers=buffers, named_data=named)))


for name, content in (("small.pte", program()), ("small.ptd", data())):
    (folder / name).write_bytes(content)
    print(name, len(content), "bytes")
