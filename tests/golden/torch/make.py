"""Write the golden checkpoints, and what torch says is in them: python make.py."""

import argparse
import sys
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from lines import line, refused

HERE = Path(__file__).parent
OURS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint64: "U64", torch.uint32: "U32",
    torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ", torch.float8_e8m0fnu: "F8_E8M0",
}  # fmt: skip


def tensors(value: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Give those that dicts, lists and tuples lead to, with their names."""
    if isinstance(value, torch.Tensor):
        yield path or "array", value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from tensors(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for i, one in enumerate(value):
            yield from tensors(one, f"{path}.{i}" if path else str(i))


def expected(file: str, name: str, tensor: torch.Tensor) -> str:
    """Return the line of one tensor."""
    kind = OURS.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
    strides = () if tensor.is_contiguous() else tensor.stride()
    elements = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.detach().reshape(-1))
    return line(file, name, kind, tensor.shape, strides, elements.view(torch.uint8).numpy().tobytes())


def numbers(*shape: int) -> torch.Tensor:
    """Return 0, 1, 2, ... in this shape."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def optimized() -> dict[str, Any]:
    """Return a checkpoint of a training: model, optimizer, numbers beside them."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        for i, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + i)
    optimizer = torch.optim.Adam(model.parameters())
    model(numbers(4, 2)).sum().backward()
    optimizer.step()
    return {"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": 0.5}


def checkpoints() -> dict[str, Any]:
    """Return what is saved, by the names of the files."""
    a = numbers(3, 4)
    tied = numbers(4, 2).to(torch.bfloat16)
    tagged = torch.nn.Parameter(numbers(2))
    tagged.tag = "kept beside the tensor"
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(numbers(2, 3))
        model.bias.copy_(numbers(2))
    model.register_buffer("steps", torch.tensor(7))
    return {
        "state_dict.pt": model.state_dict(),
        "ordered.pt": OrderedDict([("b.weight", a), ("a.weight", a + 1)]),
        "tied.pt": {"embed": tied, "head": tied, "part": tied[1:3], "shared": [tied.view(8), tied.t()]},
        "slices.pt": {
            "column": a[:, 1], "rows": a[1:], "turned": a.t(), "block": a[1:, 1:3], "every": a[:, ::2],
            "wide": a[:, :1].expand(3, 5), "one": a[2, 3], "none": a[3:], "axes": a[:1, :, None],
        },
        "dtypes.pt": {
            str(dtype).removeprefix("torch."): torch.arange(6).to(torch.uint8).view(6, 1).to(torch.float32).to(dtype)
            for dtype in (*OURS, torch.complex128, torch.complex32)
            if dtype not in (torch.bool,)
        } | {"bool": torch.tensor([True, False])},
        "nested.pt": {
            "model": {"layers": [{"w": a}, {"w": a * 2}], "more": (a[0], [])}, 7: a[0], "args": argparse.Namespace(x=1),
            "names": {"a", "b"}, "blob": b"\0\xff", "lr": 1e-3, "large": 2**70, "device": torch.device("cpu"),
            "size": torch.Size([1, 2]), "type": torch.float32, "none": None, "yes": True,
        },
        "parameters.pt": {"plain": torch.nn.Parameter(a), "tagged": tagged, "buffer": torch.nn.Buffer(a + 1)},
        "alone.pt": a,
        "optimizer.pt": optimized(),
    }  # fmt: skip


def main() -> None:
    """Write everything."""
    said = []
    saved = checkpoints()
    for file, value in saved.items():
        torch.save(value, HERE / file)
        read = torch.load(HERE / file, weights_only=False)
        said += [expected(file, name, tensor) for name, tensor in tensors(read)]
    torch.save(saved["nested.pt"], HERE / "protocol4.pt", pickle_protocol=4)
    said += [expected("protocol4.pt", name, tensor) for name, tensor in tensors(saved["nested.pt"])]
    module = torch.nn.Linear(1, 1)
    torch.save(module, HERE / "module.pt")
    said.append(refused("module.pt", "only objects that would have to be unpickled: torch.nn.modules.linear.Linear"))
    torch.save({"a": numbers(2)}, HERE / "old.pt", _use_new_zipfile_serialization=False)
    said.append(refused("old.pt", "the legacy format of torch.save cannot be mapped"))
    torch.jit.save(torch.jit.script(module), HERE / "script.pt")
    said.append(refused("script.pt", "TorchScript"))
    (HERE / "expected.txt").write_text("\n".join(said) + "\n")


if __name__ == "__main__":
    main()
