"""Hostile files: how each is made, and what opening it says. Made with the lines of the format's own README.

`REFUSED` holds what is a FormatError, with its exact text; `ACCEPTED` what only looks dangerous and has to open.
"""

import base64
import json
import pickle
import struct
from collections.abc import Callable
from typing import NamedTuple

from tests.support.safetensors_files import file_of

U8 = '"dtype":"U8","shape":[4],"data_offsets":[0,4]'
GOOD = '{"a":{' + U8 + "}}"
CUT = ": the file is cut off, or its header is wrong"
LIMIT = "more than the 100000000 that are allowed (is this a safetensors file?)"
KNOWN_VERSIONS = "this version of onecopy reads up to 1"
STRUCT_DAMAGED = (
    "the header's checksum does not match: damaged, or re-saved by another tool, which cannot keep a file of kind "
    "'struct' whole"
)


class Hostile(NamedTuple):
    """A maker of bytes, and what the FormatError says after the path."""

    make: Callable[[], bytes]
    error: str


def file(header: str | bytes, error: str, data: bytes = b"1234") -> Hostile:
    """Return a hostile file of a header and, by default, four bytes of data."""
    return Hostile(lambda: file_of(header, data), error)


def entry(name: str = "a", **changes: object) -> str:
    """Return one member of a header: four bytes of U8, but for the changes."""
    fields = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} | changes
    return f"{json.dumps(name)}:{json.dumps({key: value for key, value in fields.items() if value is not None})}"


def one(error: str, **changes: object) -> Hostile:
    """Return a file of one array whose fields are changed."""
    return file("{" + entry(**changes) + "}", error)


def crc32c(data: bytes) -> int:
    """Compute CRC-32C bit by bit: https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def ours(text: str, data: bytes = b"1234") -> bytes:
    """Return a file with our metadata; where its text ends with eight zeros for the header's checksum, they are set."""
    made = file_of('{"__metadata__":{"onecopy":' + json.dumps(text) + "}," + entry() + "}", data)
    digits = b'00000000\\"}}"'
    if digits not in made:
        return made
    header = made[: len(made) - len(data)]
    return made.replace(digits, f"{crc32c(header):08x}".encode() + digits[8:])


def told(text: str, error: str) -> Hostile:
    """Return a hostile text under our name in the metadata."""
    return Hostile(lambda: ours(text), error)


def checksums(block: object, data: str, kind: str = "arrays") -> str:
    """Return our metadata with these checksums of blocks; the header's own is right."""
    return (
        f'{{"version":1,"kind":"{kind}","crc32c":{{"block":{json.dumps(block)},"data":"{data}","header":"00000000"}}}}'
    )


def too_long(first: bytes) -> Hostile:
    """Return a file of another kind, whose first eight bytes are no length of a header."""
    length = struct.unpack("<Q", first[:8])[0]
    return Hostile(lambda: first + bytes(100), f"the header would have {length} bytes, {LIMIT}")


def known(first: bytes, what: str) -> Hostile:
    """Return a file of a kind that is known by its name."""
    return Hostile(lambda: first + bytes(100), f"not an array file: this is {what}")


class Evil:
    """Unpickled, it would leave a file behind."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("executed", "w")


SHORT = {
    f"{size} bytes": Hostile(
        lambda size=size: bytes(size),
        f"a safetensors file begins with 8 bytes of header length, but the file has {size}",
    )
    for size in range(1, 8)
}

LENGTHS = {
    "8 zeros: a header of no bytes": Hostile(lambda: bytes(8), "the header does not begin with '{'"),
    "a header longer than the file": Hostile(
        lambda: file_of("{}", length=3), "the header would have 3 bytes, but the file has 10"
    ),
    "a header as long as the file": Hostile(
        lambda: file_of("{}", length=10), "the header would have 10 bytes, but the file has 10"
    ),
    "a header of 100 MB that is not there": Hostile(
        lambda: file_of(GOOD, b"1234", 100_000_000), "the header would have 100000000 bytes, but the file has 65"
    ),
} | {
    f"a header of {length} bytes": Hostile(
        lambda length=length: file_of("{}", length=length), f"the header would have {length} bytes, {LIMIT}"
    )
    for length in (100_000_001, 2**32, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1)
}

JSON = {
    "spaces only": file("  ", "the header does not begin with '{'"),
    "a space first": file(" " + GOOD, "the header does not begin with '{'"),
    "a list": file("[1, 2]", "the header does not begin with '{'"),
    "a byte order mark": file("\ufeff" + GOOD, "the header does not begin with '{'"),
    "an end too early": file('{"a": ', "JSON at byte 6: expected '{'"),
    "text after the end": file(GOOD + "x", "JSON at byte 53: text after the end"),
    "NUL after the end": file(GOOD + "\0", "JSON at byte 53: text after the end"),
    "a comma too many": file(GOOD[:-1] + ",}", "JSON at byte 53: expected '\"'"),
    "a comment": file("{/**/}", "JSON at byte 1: expected '\"'"),
    "single quotes": file("{'a':{}}", "JSON at byte 1: expected '\"'"),
    "wrong UTF-8": file(b'{"\xff":{}}', "the header is not UTF-8"),
    "overlong UTF-8": file(b'{"\xc0\xaf":{}}', "the header is not UTF-8"),
    "a surrogate in UTF-8": file(b'{"\xed\xa0\x80":{}}', "the header is not UTF-8"),
    "half a surrogate pair": file('{"\\ud800":{}}', "JSON at byte 8: half of a surrogate pair"),
    "a pair the wrong way round": file('{"\\udc00\\ud800":{}}', "JSON at byte 8: half of a surrogate pair"),
    "UTF-16": file(GOOD.encode("utf-16-le"), "JSON at byte 1: expected '\"'"),
    "a control character in a name": file('{"a\tb":{}}', "JSON at byte 3: a control character in a string"),
    "an escape that is none": file('{"\\x41":{}}', "JSON at byte 4: an unknown escape sequence"),
    "an escape cut off": file('{"\\', "JSON at byte 3: an unknown escape sequence"),
    "too few hexadecimal digits": file('{"\\u00g0":{}}', "JSON at byte 4: \\u needs four hexadecimal digits"),
    "nested 65 deep": file(
        '{"a":{"x":' + "[" * 63 + "]" * 63 + "," + U8 + "}}", "JSON at byte 72: nested deeper than 64"
    ),
    "a million brackets": file('{"a":{"x":' + "[" * 1_000_000, "JSON at byte 72: nested deeper than 64"),
    "a million braces": file('{"a":' * 1_000_000, "JSON at byte 320: nested deeper than 64"),
    "a million objects": file('{"a":{"x":' + '{"":' * 1_000_000, "JSON at byte 258: nested deeper than 64"),
}

ENTRIES = {
    "a name twice": file(f"{{{entry()},{entry(shape=[0], data_offsets=[4, 4])}}}", "'a' occurs twice in the header"),
    "a name twice, once by an escape": file(
        f'{{{entry()},"\\u0061":{{"dtype":"U8","shape":[0],"data_offsets":[4,4]}}}}', "'a' occurs twice in the header"
    ),
    "a name of 1 MB twice": file(
        f"{{{entry('n' * 1_000_000)},{entry('n' * 1_000_000, shape=[0], data_offsets=[4, 4])}}}",
        f"'{'n' * 200}...' occurs twice in the header",
    ),
    "a name with a line break twice": file(
        f"{{{entry(chr(10))},{entry(chr(10), shape=[0], data_offsets=[4, 4])}}}",
        "'\\u000a' occurs twice in the header",
    ),
    "no elements, by a shape that overflows": file(
        "{" + entry(shape=[0, 2**64 - 1, 2**64 - 1], data_offsets=[0, 0]) + "}",
        "'a': bytes [0, 0) do not agree with its dtype U8 and shape",
    ),
    "dtype twice": file('{"a":{' + U8 + ',"dtype":"U8"}}', "JSON at byte 60: 'a' has dtype twice"),
    "shape twice": file('{"a":{"shape":[4],' + U8 + "}}", "JSON at byte 39: 'a' has shape twice"),
    "data_offsets twice, once by an escape": file(
        '{"a":{' + U8 + ',"data\\u005foffsets":[0,4]}}', "JSON at byte 72: 'a' has data_offsets twice"
    ),
    "no dtype": one("'a' lacks dtype, shape or data_offsets", dtype=None),
    "no shape": one("'a' lacks dtype, shape or data_offsets", shape=None),
    "no data_offsets": one("'a' lacks dtype, shape or data_offsets", data_offsets=None),
    "an empty entry": file('{"a":{}}', "'a' lacks dtype, shape or data_offsets"),
    "an entry that is null": file('{"a":null}', "JSON at byte 5: expected '{'"),
    "an unknown dtype": one("'a' has the unknown dtype 'F128'", dtype="F128"),
    "a dtype in small letters": one("'a' has the unknown dtype 'u8'", dtype="u8"),
    "a dtype of 1 MB": one(f"'a' has the unknown dtype '{'x' * 200}...'", dtype="x" * 1_000_000),
    "a dtype that is a number": one("JSON at byte 15: expected '\"'", dtype=8),
    "a shape that wraps at 2**64": one(
        "'a': bytes [0, 4) do not agree with its dtype U8 and shape", shape=[2**32, 2**32]
    ),
    "a shape that wraps to the right size": one(
        "'a': bytes [0, 4) do not agree with its dtype U8 and shape", shape=[2**62 + 1, 4]
    ),
    "a shape that wraps in bits alone": one(
        "'a': bytes [0, 4) do not agree with its dtype U8 and shape", shape=[2**61]
    ),
    "a shape of 10,000 axes": one("'a': bytes [0, 4) do not agree with its dtype U8 and shape", shape=[2] * 10_000),
    "a shape with a zero beside an overflow": one(
        "'a': bytes [0, 0) do not agree with its dtype U8 and shape", shape=[2**63, 2**63, 0], data_offsets=[0, 0]
    ),
    "a shape that is too small": one("'a': bytes [0, 4) do not agree with its dtype U8 and shape", shape=[3]),
    "a negative shape": one("JSON at byte 31: expected a non-negative integer", shape=[-4]),
    "minus zero": file('{"a":{"shape":[-0]}}', "JSON at byte 15: expected a non-negative integer"),
    "a shape with a fraction": one("JSON at byte 32: expected an integer", shape=[4.0]),
    "a shape with an exponent": file('{"a":{"shape":[4e0]}}', "JSON at byte 16: expected an integer"),
    "a shape beyond 64 bits": one("JSON at byte 31: a number of more than 64 bits", shape=[2**64]),
    "a shape of a million digits": file(
        '{"a":{"shape":[' + "9" * 1_000_000 + "]}}", "JSON at byte 15: a number of more than 64 bits"
    ),
    "a shape that is infinite": file('{"a":{"shape":[Infinity]}}', "JSON at byte 15: expected a non-negative integer"),
    "a shape with a leading zero": file('{"a":{"shape":[04]}}', "JSON at byte 15: a number with a leading zero"),
    "a shape in hexadecimal": file('{"a":{"shape":[0x4]}}', "JSON at byte 16: expected ']'"),
    "a shape that is a number": one("JSON at byte 30: expected '['", shape=4),
    "a shape of shapes": one("JSON at byte 31: expected a non-negative integer", shape=[[4]]),
    "offsets beyond the file": one(
        "'a': bytes [0, 5) but the data section has 4" + CUT, shape=[5], data_offsets=[0, 5]
    ),
    "offsets at the end of 64 bits": one(
        "'a': bytes [18446744073709551611, 18446744073709551615) but the data section has 4" + CUT,
        data_offsets=[2**64 - 5, 2**64 - 1],
    ),
    "offsets beyond 64 bits": one("JSON at byte 52: a number of more than 64 bits", data_offsets=[2**64, 2**64 + 4]),
    "negative offsets": one("JSON at byte 52: expected a non-negative integer", data_offsets=[-4, 0]),
    "offsets the wrong way round": one("'a': bytes [4, 0) end before they begin", data_offsets=[4, 0]),
    "one offset": one("JSON at byte 54: data_offsets of 'a' are not two numbers", data_offsets=[4]),
    "three offsets": one("JSON at byte 57: data_offsets of 'a' are not two numbers", data_offsets=[0, 4, 4]),
    "sub-byte elements that end within a byte": one(
        "'a': bytes [0, 2) do not agree with its dtype F4 and shape", dtype="F4", shape=[3], data_offsets=[0, 2]
    ),
    "6-bit elements that end within a byte": one(
        "'a': bytes [0, 4) do not agree with its dtype F6_E2M3 and shape", dtype="F6_E2M3", shape=[5]
    ),
}

DATA = {
    "a byte missing at the end": file(GOOD, "'a': bytes [0, 4) but the data section has 3" + CUT, b"123"),
    "a byte too many at the end": file(GOOD, "the arrays end at byte 65, but the file has 66", b"12345"),
    "data and no array": file("{}", "the arrays end at byte 10, but the file has 14"),
    "arrays that overlap": file(
        f"{{{entry()},{entry('b', data_offsets=[2, 6])}}}",
        "'b' begins at byte 127 of the file, inside the array before it that ends at 129",
        b"123456",
    ),
    "arrays at the same place": file(
        f"{{{entry()},{entry('b')}}}", "'b' begins at byte 125 of the file, inside the array before it that ends at 129"
    ),
    "an empty array inside another": file(
        f"{{{entry()},{entry('b', shape=[0], data_offsets=[2, 2])}}}",
        "'b' begins at byte 127 of the file, inside the array before it that ends at 129",
    ),
    "a hole between arrays": file(
        f"{{{entry()},{entry('b', data_offsets=[5, 9])}}}",
        "'b' begins at byte 130 of the file, after a hole that ends at 130",
        b"123456789",
    ),
    "a hole at the beginning": file(
        "{" + entry(data_offsets=[1, 5]) + "}",
        "'a' begins at byte 68 of the file, after a hole that ends at 68",
        b"12345",
    ),
    "a hole of 2**60 bytes": one(
        "'a': bytes [1152921504606846976, 1152921504606846980) but the data section has 4" + CUT,
        data_offsets=[2**60, 2**60 + 4],
    ),
}

METADATA = {
    "metadata that is a text": file('{"__metadata__":"x"}', "JSON at byte 16: expected '{'"),
    "metadata that is null": file('{"__metadata__":null}', "JSON at byte 16: expected '{'"),
    "a number in the metadata": file('{"__metadata__":{"a":1}}', "JSON at byte 21: expected '\"'"),
    "an object in the metadata": file('{"__metadata__":{"a":{}}}', "JSON at byte 21: expected '\"'"),
    "a key of the metadata twice": file(
        '{"__metadata__":{"a":"1","\\u0061":"2"}}', "JSON at byte 37: metadata 'a' occurs twice"
    ),
    "metadata twice": file(
        '{"__metadata__":{},"__metadata_\\u005f":{}}', "JSON at byte 39: __metadata__ occurs twice in the header"
    ),
    "a later version of ours": told(
        '{"version":2,"kind":"arrays"}', f"the file was written by format version 2, {KNOWN_VERSIONS}"
    ),
    "the last version of all": told(
        f'{{"version":{2**64 - 1},"kind":"arrays"}}',
        f"the file was written by format version {2**64 - 1}, {KNOWN_VERSIONS}",
    ),
    "a kind that we do not know": told(
        '{"version":1,"kind":"riddle"}', "the file is of kind 'riddle', which this version of onecopy cannot read"
    ),
    "a struct with a wrong checksum": told(
        '{"version":1,"kind":"struct","crc32c":{"header":"ffffffff"}}', STRUCT_DAMAGED
    ),
    "a struct with a checksum that is none": told(
        '{"version":1,"kind":"struct","crc32c":{"header":"xxxxxxxx"}}', STRUCT_DAMAGED
    ),
    "a struct with a checksum of 7 digits": told(
        '{"version":1,"kind":"struct","crc32c":{"header":"0000000"}}', STRUCT_DAMAGED
    ),
    "a struct whose checksum is not the last": told(
        '{"version":1,"kind":"struct","crc32c":{"header":"00000000"},"x":1}', STRUCT_DAMAGED
    ),
}

OTHER_FORMATS = {
    "a pickle": known(pickle.dumps(Evil()), "a pickle, which is never read because it could execute code"),
    "a pickle of protocol 0": too_long(pickle.dumps(Evil(), 0)),
    "a zip file, as of torch.save": too_long(b"PK\x03\x04\x14\x00\x08\x08"),
    "HDF5": known(b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    "ELF": known(b"\x7fELF\x02\x01\x01\x00", "a program or library"),
    "a page of HTML": known(b"<!DOCTYPE html>", "an HTML page, as a failed download leaves it"),
    "a pointer of git-lfs": known(
        b"version https://git-lfs.github.com/spec/v1", "a pointer of git-lfs: 'git lfs pull' fetches the file"
    ),
}

REFUSED = SHORT | LENGTHS | JSON | ENTRIES | DATA | METADATA | OTHER_FORMATS

ONE_BLOCK = base64.b64encode(struct.pack("<I", crc32c(b"1234"))).decode()
SIZES = "a power of two from 4096 to 2097152 was expected"
NOT_THE_LIST = "the checksums are not the base64 text of the 1 that the data section needs"

# The header's checksum is right here: only the list of the blocks' is not.
BLOCK_LISTS = {
    f"blocks of {size} bytes": told(checksums(size, ONE_BLOCK), f"checksums of blocks of {size} bytes; {SIZES}")
    for size in (0, 1, 5000, 2**22, 2**63, 2**64 - 1)
} | {
    f"the list of checksums {text!r}": told(checksums(2**21, text), NOT_THE_LIST)
    for text in (
        "",
        ONE_BLOCK[:-1],
        ONE_BLOCK[:-2],
        ONE_BLOCK + ONE_BLOCK,
        ONE_BLOCK[:-3] + "$==",
        ONE_BLOCK[:-1] + "A",
        "=" * 8,
        " " + ONE_BLOCK[1:],
        ONE_BLOCK[:5] + chr(ord(ONE_BLOCK[5]) + 1) + "==",  # bits that mean nothing are set
    )
}


def empties(count: int) -> bytes:
    """Return a file of many arrays without a byte."""
    return file_of(
        "{" + ",".join(f'"{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(count)) + "}"
    )


ACCEPTED: dict[str, Callable[[], bytes]] = {
    "no array": lambda: file_of("{}"),
    "spaces behind the header": lambda: file_of(GOOD + " " * 10_000, b"1234"),
    "a name of 1 MB": lambda: file_of("{" + entry("n" * 1_000_000) + "}", b"1234"),
    "a name of control characters": lambda: file_of("{" + entry("\0\x1b[2J\r\n\x7f") + "}", b"1234"),
    "a name that looks like a path": lambda: file_of("{" + entry("../../etc/passwd\0") + "}", b"1234"),
    "a name without characters": lambda: file_of("{" + entry("") + "}", b"1234"),
    "a name of marks that turn the text round": lambda: file_of("{" + entry("\u202egpj.exe") + "}", b"1234"),
    "names that differ by normalisation": lambda: file_of(
        "{" + entry("\u00e9") + "," + entry("e\u0301", shape=[0], data_offsets=[4, 4]) + "}", b"1234"
    ),
    "100,000 arrays of no bytes": lambda: empties(100_000),
    "a shape of 10,000 axes": lambda: file_of("{" + entry(shape=[1] * 10_000 + [4]) + "}", b"1234"),
    "unknown fields, 60 deep": lambda: file_of('{"a":{"x":' + "[" * 60 + "]" * 60 + "," + U8 + "}}", b"1234"),
    "unknown fields of every type": lambda: file_of(
        '{"a":{"x":[-0.5e+3,true,false,null,"\\ud83d\\ude00",{"":[]}],' + U8 + "}}", b"1234"
    ),
    "1 MB of metadata": lambda: file_of('{"__metadata__":{"a":"' + "\\n" * 500_000 + '"}}'),
    "1 MB of escapes in an unknown field": lambda: file_of(
        '{"a":{"x":[' + '"\\n",{"\\n":0,"\\t":0},' * 50_000 + "0]," + U8 + "}}", b"1234"
    ),
    "1 MB of escaped keys in an unknown field": lambda: file_of(
        '{"a":{"x":{' + '"\\n":0,' * 140_000 + '"":0},' + U8 + "}}", b"1234"
    ),
    "our metadata of wrong types": lambda: ours('{"version":"1","kind":7,"crc32c":[]}'),
    "our metadata with a negative version": lambda: ours('{"version":-1,"kind":"arrays"}'),
    "our metadata that is no JSON": lambda: ours("{{{{"),
    "our metadata, nested deeply": lambda: ours("[" * 100_000),
}
