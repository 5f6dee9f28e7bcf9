"""Write small.gguf and aligned.gguf with the gguf package, in the version of the README, and say what is where."""

import sys
from pathlib import Path

import gguf
import numpy as np

folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent)
rng = np.random.default_rng(1)


def write(path: Path, alignment: int | None) -> None:
    """Write one file: numbers of several types, and three quantised tensors."""
    writer = gguf.GGUFWriter(path, "test")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_name("a golden file")
    writer.add_context_length(128)
    writer.add_rope_freq_base(10000.0)
    writer.add_array("test.sections", [1, -2, 3])
    writer.add_token_list(["<s>", "a", "b"])
    writer.add_tensor("f32", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("f16", np.arange(24, dtype=np.float16).reshape(2, 3, 4))
    writer.add_tensor("i8", np.arange(5, dtype=np.int8))
    writer.add_tensor("i64", np.arange(3, dtype=np.int64).reshape(3, 1))
    numbers = rng.standard_normal((2, 256)).astype(np.float32)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.BF16):
        writer.add_tensor(kind.name.lower(), gguf.quants.quantize(numbers, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


for name, alignment in (("small.gguf", None), ("aligned.gguf", 128)):
    write(folder / name, alignment)
    reader = gguf.GGUFReader(folder / name)
    print(name, (folder / name).stat().st_size, "bytes")
    for tensor in reader.tensors:
        shape = [int(extent) for extent in reversed(tensor.shape)]
        print(f'  {{"{tensor.name}", "{tensor.tensor_type.name}", {shape}, {tensor.data_offset}, {tensor.n_bytes}}}')
