"""Write the seeds of the fuzz corpora to a folder: python fuzz/seeds.py FOLDER.

For the parser the hostile files of the tests, but for the large ones; for the layout a few arrays of each form; for the
streams small values, for the store descriptions, for JSON texts; for numpy's and torch's files the golden ones, whole
and damaged, and pickles of tensors. `make fuzz-seeds` then keeps what adds coverage.
"""

import hashlib
import random
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support import hostile_files as files

LARGEST = 5000  # bytes


def parser_seeds() -> Iterator[bytes]:
    """Make what is refused and what is accepted, and good files with and without our metadata."""
    hostile = files.REFUSED | files.BLOCK_LISTS
    yield from (one.make() for one in hostile.values())
    yield from (make() for make in files.ACCEPTED.values())
    for dtype, item in {"BOOL": 1, "BF16": 2, "F32": 4, "C64": 8, "F8_E8M0": 1}.items():
        fields = {"dtype": dtype, "shape": [2, 2], "data_offsets": [0, 4 * item]}
        yield files.file_of("{" + files.entry("\u00e9\u20ac\U0001f600", **fields) + "}", bytes(4 * item))
    for kind in ("arrays", "struct", "records", "image"):
        yield files.ours(files.checksums(2**21, files.ONE_BLOCK, kind))
        yield files.ours(f'{{"version":1,"kind":"{kind}","align":64,"schema":{{"a":[]}}}}')


def layout_seeds() -> Iterator[bytes]:
    """Make random choices; the first byte holds the options."""
    dice = random.Random(1)
    for options in range(256):
        yield bytes([options, 6 + options % 16]) + dice.randbytes(dice.randrange(100))


def stream_seeds() -> Iterator[bytes]:
    """Make values of the fuzz target of the streams: some fields filled, others empty, children in children."""

    def counted(*items: bytes) -> bytes:
        return len(items).to_bytes(8, "little") + b"".join(items)

    def value(choice: int, children: bytes) -> bytes:
        words = counted(*[b"eight..."] * (choice & 3))
        subs = counted(*(bytes([choice]) + counted(*[b"four"] * size) for size in range(choice >> 2 & 3)))
        rest = counted(*[b"ab"] * (choice >> 4 & 1)) + counted(*[counted(b"x", b"y")] * (choice >> 5 & 1))
        return bytes([choice & 1]) + words + subs + children + rest + (b"\1" + bytes(8) if choice >> 6 else b"\0")

    for choice in range(128):
        one = value(choice, counted())
        yield one
        yield value(choice, counted(one, value(choice ^ 0x55, counted(one))))


def store_seeds() -> Iterator[bytes]:
    """Make descriptions of artefacts, whole and cut, and with invalid numbers."""
    names = ("key", "bytes", "written", "created", "source", "source-inode", "source-bytes", "source-written")
    for values in (("k", 1, 2, 3, "/s", 4, 5, 6), ("", 2**64 - 1, -(2**63), 0, "", 0, 0, 0), (" \n", *"0x1-+.9")):
        lines = [f"{name} {len(str(value))} {value}\n" for name, value in zip(names, values, strict=True)]
        text = "".join(["onecopy artefact 1\n", *lines]).encode()
        yield from (text, text[:-1], text.replace(b"key ", b"key 9"), text.replace(b" 1\n", b" 2\nboot 6 a-boot\n", 1))


def json_seeds() -> Iterator[bytes]:
    """Make texts with all of JSON's syntax, whole, cut and damaged; the first byte chooses the container."""
    texts = (
        '[{"a":{"b":[1,-0.5,1e9,12345678901234567890,null,true]},"c":"\u00e9\\ud83d\\ude00\\n"},{"c":1,"a":[]},{}]',
        '{"x":[{"y":"]}"}],"a":{"z":0,"b":[[[]],"k",2.5]}}',
        '{"a":1}\n\r\n[NaN,Infinity,-Infinity]\n"x"\n1.25e-7',
        '{"a":1,"b":{"k":2,"k":3},"":[]}',
        " [ 9007199254740993 , 0.25, -9223372036854775808, false ] ",
    )
    for wanted in range(4):
        for text in texts:
            data = bytes([wanted]) + text.encode()
            yield from (
                data,
                data[:-3],
                data.replace(b"1", b"01"),
                data.replace(b'"', b"'", 1),
                data.replace(b":", b"\xff"),
            )


def golden_seeds(pattern: str) -> Iterator[bytes]:
    """Read what numpy or torch wrote, and damage it a little."""
    dice = random.Random(2)
    for path in sorted((Path(__file__).parents[1] / "tests" / "golden").glob(pattern)):
        data = path.read_bytes()
        yield data
        yield data[: len(data) // 2]
        damaged = bytearray(data)
        for _ in range(3):
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        yield bytes(damaged)


def pickle_seeds() -> Iterator[bytes]:
    """Make pickles, without their protocol, of tensors in the storages that fuzz_torch_zip has: 64, 16 and no bytes."""

    def text(some: str) -> bytes:
        return b"X" + len(some).to_bytes(4, "little") + some.encode()

    def counts(*some: int) -> bytes:
        return b"(" + b"".join(b"K" + bytes([one]) for one in some) + b"t"

    def tensor(kind: str, key: int, first: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
        size = (64, 16, 0)[key] // {"Float": 4, "Half": 2, "Byte": 1, "ComplexDouble": 16}[kind]
        storage = b"(" + text("storage") + b"ctorch\n" + kind.encode() + b"Storage\n" + text(str(key)) + text("cpu")
        storage += b"K" + bytes([size]) + b"tQ"
        hooks = b"ccollections\nOrderedDict\n)R"
        arguments = b"(" + storage + b"K" + bytes([first]) + counts(*shape) + counts(*strides) + b"\x89" + hooks + b"t"
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"

    whole = tensor("Float", 0, 0, (4, 4), (4, 1))
    part = tensor("Half", 1, 1, (2, 3), (1, 2))
    none = tensor("Byte", 2, 0, (0, 3), (3, 1))
    wide = tensor("ComplexDouble", 0, 3, (2, 1), (0, 9))
    parameter = b"ctorch._utils\n_rebuild_parameter\n(" + part + b"\x88ccollections\nOrderedDict\n)RtR"
    typed = b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor\ncm\nT\n(N)))t}tR"
    for value in (whole, part, none, wide, parameter, typed):
        yield value + b"."
        yield b"}(" + text("a") + value + b"q\0K\x01](h\0)he" + b"u."
    yield b"}q\0(" + text("me") + b"h\0" + text("w") + whole + b"u."
    yield b"](N\x88\x89M\0\1J\0\0\0\1\x8a\x02\0\1G12345678\x8c\x01aC\x01a\x8f(K\1\x90(\x91K\1\x85K\1K\2\x86e."
    yield b"](\x8c\1m\x8c\1n\x93)\x81}bcm\nn\n)R(NNu\x94j\1\0\0\0\x95\0\0\0\0\0\0\0\x00120e."
    for path in sorted((Path(__file__).parents[1] / "tests" / "golden" / "torch").glob("*.pt")):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                yield archive.read(f"{path.stem}/data.pkl")[2:]


def main() -> None:
    """Write each seed under the hash of its bytes."""
    all_seeds = {
        "safetensors": parser_seeds(),
        "layout": layout_seeds(),
        "streams": stream_seeds(),
        "store": store_seeds(),
        "json_import": json_seeds(),
        "npy": golden_seeds("numpy/*.npy"),
        "npz": golden_seeds("numpy/*.npz"),
        "torch_zip": (seed for seeds in (golden_seeds("torch/*.pt"), pickle_seeds()) for seed in seeds),
    }
    for name, seeds in all_seeds.items():
        folder = Path(sys.argv[1], name)
        folder.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            if len(seed) <= LARGEST:
                (folder / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)


if __name__ == "__main__":
    main()
