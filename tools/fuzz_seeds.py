"""Write the seeds of the fuzz corpora to a folder: tools/fuzz_seeds.py FOLDER.

For the parser the hostile files of the tests, but for the large ones; for the layout a few arrays of each form; for the
streams small values, for the store descriptions, for JSON texts. `make fuzz-seeds` then keeps what adds coverage.
"""

import hashlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hostile"))
import files

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
    """Make descriptions of artefacts, whole and cut, and with numbers that are none."""
    names = ("key", "bytes", "written", "created", "source", "source-inode", "source-bytes", "source-written")
    for values in (("k", 1, 2, 3, "/s", 4, 5, 6), ("", 2**64 - 1, -(2**63), 0, "", 0, 0, 0), (" \n", *"0x1-+.9")):
        lines = [f"{name} {len(str(value))} {value}\n" for name, value in zip(names, values, strict=True)]
        text = "".join(["onecopy artefact 1\n", *lines]).encode()
        yield from (text, text[:-1], text.replace(b"key ", b"key 9"))


def json_seeds() -> Iterator[bytes]:
    """Make texts with everything that JSON has, whole, cut and damaged; the first byte chooses the container."""
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


def main() -> None:
    """Write each seed under the hash of its bytes."""
    all_seeds = {
        "safetensors": parser_seeds(),
        "layout": layout_seeds(),
        "streams": stream_seeds(),
        "store": store_seeds(),
        "json_import": json_seeds(),
    }
    for name, seeds in all_seeds.items():
        folder = Path(sys.argv[1], name)
        folder.mkdir(parents=True, exist_ok=True)
        for seed in seeds:
            if len(seed) <= LARGEST:
                (folder / hashlib.sha1(seed, usedforsecurity=False).hexdigest()).write_bytes(seed)


if __name__ == "__main__":
    main()
