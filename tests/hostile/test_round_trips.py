"""Any file through onecopy and through the safetensors package, both ways; numpy and the file's bytes are the judges.

What the tests of arrays show for numpy's own element types is shown here for all that both sides can say, together with
metadata and alignment, and for headers that no writer of ours would make.
"""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as npst
from tests.support.rows import same
from tests.support.safetensors_files import file_of

import onecopy as oc

MIB = 1 << 20
# Every element type that both sides can hold in numpy; F4 and F6 are packed, and neither side can save them.
DTYPES = {
    **{f"U{8 * size}": np.dtype(f"u{size}").type for size in (1, 2, 4, 8)},
    **{f"I{8 * size}": np.dtype(f"i{size}").type for size in (1, 2, 4, 8)},
    **{f"F{8 * size}": np.dtype(f"f{size}").type for size in (2, 4, 8)},
    **{f"F8_{name.upper().removesuffix('FN')}": getattr(ml_dtypes, f"float8_{name}") for name in ("e4m3fn", "e5m2")},
    **{f"F8_{name.upper()}": getattr(ml_dtypes, f"float8_{name}") for name in ("e4m3fnuz", "e5m2fnuz")},
    "F8_E8M0": ml_dtypes.float8_e8m0fnu,
    "BF16": ml_dtypes.bfloat16,
    "BOOL": np.bool_,
    "C64": np.complex64,
}


@st.composite
def arrays(draw) -> np.ndarray:
    """Draw an array of any element type and any bits: NaNs with a payload too."""
    dtype = np.dtype(DTYPES[draw(st.sampled_from(list(DTYPES)))])
    shape = draw(npst.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4))
    size = int(np.prod(shape, dtype=int)) * dtype.itemsize
    data = draw(st.binary(min_size=size, max_size=size))
    if dtype == np.bool_:
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype).reshape(shape)


# All of Unicode that UTF-8 has, and above all what JSON has to escape.
characters = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    '\0\b\t\n\f\r\x1b\x7f"\\/\u2028\ufeff\ufffe\U0010ffff'
)
texts = st.text(characters, max_size=20)
names = texts.filter(lambda name: name != "__metadata__")
keys = texts.filter(lambda key: key not in {"onecopy", "format"})


def metadata_of(path: Path) -> dict[str, str]:
    with safetensors.safe_open(path, "np") as file:
        return file.metadata() or {}


def load(path: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """Read a file as the package's own parser of bytes does, which knows every element type."""
    return {
        name: (one["dtype"], one["shape"], bytes(one["data"]))
        for name, one in safetensors.deserialize(path.read_bytes())
    }


@given(
    tensors=st.dictionaries(names, arrays(), max_size=6),
    metadata=st.dictionaries(keys, texts, max_size=3),
    align=st.sampled_from([None, 64, 256, 4096, 2 * MIB]),
    checksum=st.booleans(),
)
def test_what_we_write_they_read(path, tensors, metadata, align, checksum):
    if align:
        tensors = {name: array for name, array in tensors.items() if not name.startswith("#")}
    oc.save(path, tensors, metadata, align, checksum=checksum)
    theirs = load(path)
    fillers = set(theirs) - set(tensors)
    assert all(name.startswith("#") and not any(theirs[name][2]) for name in fillers)
    assert align or not fillers
    for name, array in tensors.items():
        dtype, shape, data = theirs[name]
        assert (np.dtype(DTYPES[dtype]), tuple(shape), data) == (array.dtype, array.shape, array.tobytes())
    told = metadata_of(path)
    assert json.loads(told.pop("onecopy"))["version"] == 1
    assert told == {"format": "pt", **metadata}
    with oc.open(path) as file:
        assert list(file) == list(tensors)
        assert all(same(file[name], array) for name, array in tensors.items())
        assert file.metadata == {"format": "pt", **metadata}


@given(
    tensors=st.dictionaries(names, arrays(), max_size=6), metadata=st.none() | st.dictionaries(keys, texts, min_size=1)
)
def test_what_they_write_we_read_and_write_again(path, tensors, metadata):
    path.write_bytes(safetensors.numpy.save(tensors, metadata))
    with oc.open(path) as file:
        assert set(file) == set(tensors)
        assert all(same(file[name], array) for name, array in tensors.items())
        assert {entry.name: np.dtype(DTYPES[entry.dtype]) for entry in file.entries} == {
            name: array.dtype for name, array in tensors.items()
        }
        assert file.metadata == (metadata or {})
        again = path.with_name("again")
        oc.save(again, file, metadata)
    assert {name: data for name, (_, _, data) in load(again).items()} == {n: a.tobytes() for n, a in tensors.items()}


@st.composite
def spelled(draw, text: str) -> str:
    """Draw a way to write a text in JSON: any character may be escaped, as itself or as a pair of surrogates."""
    short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    out = ""
    for character in text:
        units = character.encode("utf-16-be")
        long = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
        ways = [long, long.upper().replace("\\U", "\\u")]
        ways += [short[character]] if character in short else []
        ways += [character] if character >= " " and character not in '"\\' else []
        out += draw(st.sampled_from(ways))
    return f'"{out}"'


spaces = st.text(" \n\t\r", max_size=2)


@given(data=st.data(), tensors=st.dictionaries(names, arrays(), min_size=1, max_size=4))
def test_every_way_to_spell_a_header_is_read_as_they_read_it(path, data, tensors):
    code = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    at, members = 0, []
    for name, array in tensors.items():
        fields = {
            "dtype": json.dumps(code[array.dtype]),
            "shape": json.dumps(array.shape),
            "data_offsets": json.dumps([at, at + array.nbytes]),
        }
        at += array.nbytes
        order = data.draw(st.permutations(list(fields)))
        text = ",".join(
            f"{data.draw(spaces)}{data.draw(spelled(key))}{data.draw(spaces)}:{fields[key]}" for key in order
        )
        members.append(f"{data.draw(spelled(name))}:{data.draw(spaces)}{{{text}{data.draw(spaces)}}}")
    header = f"{{{','.join(data.draw(st.permutations(members)))}}}{data.draw(st.text(' ', max_size=9))}".encode()
    path.write_bytes(file_of(header, b"".join(array.tobytes() for array in tensors.values())))
    theirs = load(path)
    with oc.open(path) as file:
        assert set(file) == set(theirs) == set(tensors)
        for entry in file.entries:
            assert theirs[entry.name] == (entry.dtype, list(entry.shape), tensors[entry.name].tobytes())
            assert same(file[entry.name], tensors[entry.name])


@given(data=st.data())
def test_a_header_with_a_byte_changed_is_never_read_as_something_else_than_they_read(path, data):
    oc.save(path, {"first": np.arange(3, dtype=np.int16), "second": np.zeros((2, 2), np.float32)}, checksum=False)
    file = bytearray(path.read_bytes())
    end = file.rindex(b"}", 0, 4096) + 1
    for _ in range(data.draw(st.integers(1, 3))):
        file[data.draw(st.integers(0, end - 1))] = data.draw(st.sampled_from(b'0123456789{}[],:" \\aU\xff\0'))
    path.write_bytes(file)
    try:
        with oc.open(path) as opened:
            ours = {
                e.name: (e.dtype, list(e.shape), bytes(file[e.offset : e.offset + e.nbytes])) for e in opened.entries
            }
    except oc.FormatError:
        return  # stricter is allowed
    assert ours == load(path)
