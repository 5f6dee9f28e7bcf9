"""Hostile files: how each is made, and why it is refused. Made with the lines of the format's own README.

`REFUSED` holds what is a FormatError, with its kind and place; `ACCEPTED` what only looks dangerous and has to open.
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


class Hostile(NamedTuple):
    """A maker of bytes, and the kind and the place of the FormatError, in the notation of `tests.support.refusals`."""

    make: Callable[[], bytes]
    refusal: str


def file(header: str | bytes, refusal: str, data: bytes = b"1234") -> Hostile:
    """Return a hostile file of a header and, by default, four bytes of data."""
    return Hostile(lambda: file_of(header, data), refusal)


def entry(name: str = "a", **changes: object) -> str:
    """Return one member of a header: four bytes of U8, but for the changes."""
    fields = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} | changes
    return f"{json.dumps(name)}:{json.dumps({key: value for key, value in fields.items() if value is not None})}"


def of(*entries: str) -> str:
    """Return a header of entries."""
    return "{" + ",".join(entries) + "}"


def one(refusal: str, **changes: object) -> Hostile:
    """Return a file of one array whose fields are changed."""
    return file(of(entry(**changes)), refusal)


EMPTY: dict[str, object] = {"shape": [0], "data_offsets": [4, 4]}
ESCAPED = entry(**EMPTY).replace('"a"', '"\\u0061"', 1)


def twice(name: str, refusal: str = "inconsistent") -> Hostile:
    """Return a file with two arrays of a name."""
    return file(of(entry(name), entry(name, **EMPTY)), refusal)


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


def told(text: str, refusal: str) -> Hostile:
    """Return a hostile text under our name in the metadata."""
    return Hostile(lambda: ours(text), refusal)


def checksums(block: object, data: str, kind: str = "arrays") -> str:
    """Return our metadata with these checksums of blocks; the header's own is right."""
    return (
        f'{{"version":1,"kind":"{kind}","crc32c":{{"block":{json.dumps(block)},"data":"{data}","header":"00000000"}}}}'
    )


def known(first: bytes) -> Hostile:
    """Return a file of a kind that is known by its name."""
    return Hostile(lambda: first + bytes(100), "not_this_format")


class Evil:
    """Unpickled, it would leave a file behind."""

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, ("executed", "w")


SHORT = {f"{size} bytes": Hostile(lambda size=size: bytes(size), f"truncated at {size}") for size in range(1, 8)}

LENGTHS = {
    "8 zeros: a header of no bytes": Hostile(lambda: bytes(8), "not_this_format"),
    "a header longer than the file": Hostile(lambda: file_of("{}", length=3), "truncated at 10"),
    "a header as long as the file": Hostile(lambda: file_of("{}", length=10), "truncated at 10"),
    "a header of 100 MB that is not there": Hostile(lambda: file_of(GOOD, b"1234", 100_000_000), "truncated at 65"),
} | {
    f"a header of {length} bytes": Hostile(lambda length=length: file_of("{}", length=length), "not_this_format at 0")
    for length in (100_000_001, 2**32, 2**63 - 1, 2**63, 2**64 - 8, 2**64 - 1)
}

JSON = {
    "spaces only": file("  ", "not_this_format"),
    "a space first": file(" " + GOOD, "not_this_format"),
    "a list": file("[1, 2]", "not_this_format"),
    "a byte order mark": file("\ufeff" + GOOD, "not_this_format"),
    "an end too early": file('{"a": ', "malformed at 14"),
    "text after the end": file(GOOD + "x", "malformed at 61"),
    "NUL after the end": file(GOOD + "\0", "malformed at 61"),
    "a comma too many": file(GOOD[:-1] + ",}", "malformed at 61"),
    "a comma alone": file("{,}", "malformed at 9"),
    "a comment": file("{/**/}", "malformed at 9"),
    "single quotes": file("{'a':{}}", "malformed at 9"),
    "wrong UTF-8": file(b'{"\xff":{}}', "malformed"),
    "overlong UTF-8": file(b'{"\xc0\xaf":{}}', "malformed"),
    "a surrogate in UTF-8": file(b'{"\xed\xa0\x80":{}}', "malformed"),
    "half a surrogate pair": file('{"\\ud800":{}}', "malformed at 16"),
    "a pair the wrong way round": file('{"\\udc00\\ud800":{}}', "malformed at 16"),
    "UTF-16": file(GOOD.encode("utf-16-le"), "malformed at 9"),
    "a control character in a name": file('{"a\tb":{}}', "malformed at 11"),
    "an escape that is none": file('{"\\x41":{}}', "malformed at 12"),
    "an escape cut off": file('{"\\', "malformed at 11"),
    "too few hexadecimal digits": file('{"\\u00g0":{}}', "malformed at 12"),
    "nested 65 deep": file('{"a":{"x":' + "[" * 63 + "]" * 63 + "," + U8 + "}}", "too_costly at 80"),
    "a million brackets": file('{"a":{"x":' + "[" * 1_000_000, "too_costly at 80"),
    "a million braces": file('{"a":' * 1_000_000, "too_costly at 328"),
    "a million objects": file('{"a":{"x":' + '{"":' * 1_000_000, "too_costly at 266"),
}

ENTRIES = {
    "a name twice": twice("a"),
    "a name of 1 MB twice": twice("n" * 1_000_000),
    "a name with a line break twice": twice("\n"),
    "a name twice, once by an escape": file(of(entry(), ESCAPED), "inconsistent"),
    "no elements, by a shape that overflows": one("inconsistent", shape=[0, 2**64 - 1, 2**64 - 1], data_offsets=[0, 0]),
    "dtype twice": file('{"a":{' + U8 + ',"dtype":"U8"}}', "inconsistent at 68"),
    "shape twice": file('{"a":{"shape":[4],' + U8 + "}}", "inconsistent at 47"),
    "data_offsets twice, once escaped": file('{"a":{' + U8 + ',"data\\u005foffsets":[0,4]}}', "inconsistent at 80"),
    "no dtype": one("malformed", dtype=None),
    "no shape": one("malformed", shape=None),
    "no data_offsets": one("malformed", data_offsets=None),
    "an empty entry": file('{"a":{}}', "malformed"),
    "an entry that is null": file('{"a":null}', "malformed at 13"),
    "an unknown dtype": one("unsupported", dtype="F128"),
    "a dtype in small letters": one("unsupported", dtype="u8"),
    "a dtype of 1 MB": one("unsupported", dtype="x" * 1_000_000),
    "a dtype that is a number": one("malformed at 23", dtype=8),
    "a shape that wraps at 2**64": one("inconsistent", shape=[2**32, 2**32]),
    "a shape that wraps to no bytes": one("inconsistent", dtype="F64", shape=[2**62, 4], data_offsets=[0, 0]),
    "a shape that wraps to the right size": one("inconsistent", shape=[2**62 + 1, 4]),
    "a shape that wraps in bits alone": one("inconsistent", shape=[2**61]),
    "a shape of 10,000 axes": one("inconsistent", shape=[2] * 10_000),
    "a shape with a zero beside an overflow": one("inconsistent", shape=[2**63, 2**63, 0], data_offsets=[0, 0]),
    "a shape that is too small": one("inconsistent", shape=[3]),
    "a negative shape": one("malformed at 39", shape=[-4]),
    "minus zero": file('{"a":{"shape":[-0]}}', "malformed at 23"),
    "a shape with a fraction": one("malformed at 40", shape=[4.0]),
    "a shape with an exponent": file('{"a":{"shape":[4e0]}}', "malformed at 24"),
    "a shape beyond 64 bits": one("malformed at 39", shape=[2**64]),
    "a shape of a million digits": file('{"a":{"shape":[' + "9" * 1_000_000 + "]}}", "malformed at 23"),
    "a shape that is infinite": file('{"a":{"shape":[Infinity]}}', "malformed at 23"),
    "a shape with a leading zero": file('{"a":{"shape":[04]}}', "malformed at 23"),
    "a shape in hexadecimal": file('{"a":{"shape":[0x4]}}', "malformed at 24"),
    "a shape that is a number": one("malformed at 38", shape=4),
    "a shape of shapes": one("malformed at 39", shape=[[4]]),
    "offsets beyond the file": one("truncated at 71", shape=[5], data_offsets=[0, 5]),
    "offsets at the end of 64 bits": one("truncated at 109", data_offsets=[2**64 - 5, 2**64 - 1]),
    "no bytes at the end of 64 bits": one("truncated at 109", shape=[0], data_offsets=[2**64 - 1, 2**64 - 1]),
    "offsets beyond 64 bits": one("malformed at 60", data_offsets=[2**64, 2**64 + 4]),
    "negative offsets": one("malformed at 60", data_offsets=[-4, 0]),
    "offsets the wrong way round": one("malformed", data_offsets=[4, 0]),
    "one offset": one("malformed at 62", data_offsets=[4]),
    "three offsets": one("malformed at 65", data_offsets=[0, 4, 4]),
    "sub-byte elements that end within a byte": one("inconsistent", dtype="F4", shape=[3], data_offsets=[0, 2]),
    "6-bit elements that end within a byte": one("inconsistent", dtype="F6_E2M3", shape=[5]),
}

DATA = {
    "a byte missing at the end": file(GOOD, "truncated at 64", b"123"),
    "a byte too many at the end": file(GOOD, "inconsistent at 65", b"12345"),
    "data and no array": file("{}", "inconsistent at 10"),
    "arrays that overlap": file(of(entry(), entry("b", data_offsets=[2, 6])), "inconsistent at 127", b"123456"),
    "arrays at the same place": file(of(entry(), entry("b")), "inconsistent at 125"),
    "an empty array inside another": file(
        of(entry(), entry("b", shape=[0], data_offsets=[2, 2])), "inconsistent at 127"
    ),
    "a hole between arrays": file(of(entry(), entry("b", data_offsets=[5, 9])), "inconsistent at 130", b"123456789"),
    "a hole at the beginning": file(of(entry(data_offsets=[1, 5])), "inconsistent at 68", b"12345"),
    "a hole of 2**60 bytes": one("truncated at 107", data_offsets=[2**60, 2**60 + 4]),
}

METADATA = {
    "metadata that is a text": file('{"__metadata__":"x"}', "malformed at 24"),
    "metadata that is almost null": file('{"__metadata__":nul}', "malformed at 24"),
    "metadata that is null and a number": file('{"__metadata__":null1}', "malformed at 28"),
    "metadata that is null twice": file('{"__metadata__":null,"__metadata__":null}', "inconsistent at 44"),
    "a number in the metadata": file('{"__metadata__":{"a":1}}', "malformed at 29"),
    "an object in the metadata": file('{"__metadata__":{"a":{}}}', "malformed at 29"),
    "a key of the metadata twice": file('{"__metadata__":{"a":"1","\\u0061":"2"}}', "inconsistent at 45"),
    "metadata twice": file('{"__metadata__":{},"__metadata_\\u005f":{}}', "inconsistent at 47"),
    "a later version of ours": told('{"version":2,"kind":"arrays"}', "unsupported"),
    "the last version of all": told(f'{{"version":{2**64 - 1},"kind":"arrays"}}', "unsupported"),
    "a kind that we do not know": told('{"version":1,"kind":"riddle"}', "unsupported"),
} | {
    f"a struct with the checksum {text}": told(
        f'{{"version":1,"kind":"struct","crc32c":{{"header":"{text}"}}{more}}}', "inconsistent"
    )
    for text, more in (("ffffffff", ""), ("xxxxxxxx", ""), ("0000000", ""), ("00000000", ',"x":1'))  # not the last
}

OTHER_FORMATS = {
    "a pickle": known(pickle.dumps(Evil())),
    "a pickle of protocol 0": known(pickle.dumps(Evil(), 0)),
    "a zip file that is cut off": known(b"PK\x03\x04\x14\x00\x08\x08"),
    "HDF5": known(b"\x89HDF\r\n\x1a\n"),
    "ELF": known(b"\x7fELF\x02\x01\x01\x00"),
    "a page of HTML": known(b"<!DOCTYPE html>"),
    "a pointer of git-lfs": known(b"version https://git-lfs.github.com/spec/v1"),
}

REFUSED = SHORT | LENGTHS | JSON | ENTRIES | DATA | METADATA | OTHER_FORMATS

ONE_BLOCK = base64.b64encode(struct.pack("<I", crc32c(b"1234"))).decode()

# The header's checksum is right here: only the list of the blocks' is not.
BLOCK_LISTS = {
    f"blocks of {size} bytes": told(checksums(size, ONE_BLOCK), "unsupported")
    for size in (0, 1, 2048, 5000, 3 * 2**20, 2**22, 2**63, 2**64 - 1)
} | {
    f"the list of checksums {text!r}": told(checksums(2**21, text), "inconsistent")
    for text in (
        "",
        ONE_BLOCK[:-1],
        ONE_BLOCK[:-2],
        ONE_BLOCK + ONE_BLOCK,
        ONE_BLOCK[:-3] + "$==",
        ONE_BLOCK[:-1] + "A",
        "=" * 8,
        " " + ONE_BLOCK[1:],
        "\u00ff" * 4,
        ONE_BLOCK[:5] + chr(ord(ONE_BLOCK[5]) + 1) + "==",  # bits that mean nothing are set
    )
}


def accepted(header: str) -> Callable[[], bytes]:
    return lambda: file_of(header, b"1234")


ACCEPTED: dict[str, Callable[[], bytes]] = {
    "no array": lambda: file_of("{}"),
    "spaces behind the header": accepted(GOOD + " " * 10_000),
    "a name of 1 MB": accepted(of(entry("n" * 1_000_000))),
    "a name of control characters": accepted(of(entry("\0\x1b[2J\r\n\x7f"))),
    "a name that looks like a path": accepted(of(entry("../../etc/passwd\0"))),
    "a name without characters": accepted(of(entry(""))),
    "a name of marks that turn the text round": accepted(of(entry("\u202egpj.exe"))),
    "names that differ by normalisation": accepted(of(entry("\u00e9"), entry("e\u0301", **EMPTY))),
    "100,000 arrays of no bytes": lambda: file_of(
        of(*(entry(f"{i}", shape=[0], data_offsets=[0, 0]) for i in range(100_000)))
    ),
    "a shape of 10,000 axes": accepted(of(entry(shape=[1] * 10_000 + [4]))),
    "unknown fields, 60 deep": accepted('{"a":{"x":' + "[" * 60 + "]" * 60 + "," + U8 + "}}"),
    "unknown fields of every type": accepted(
        '{"a":{"x":[-0.5e+3,true,false,null,"\\ud83d\\ude00",{"":[]}],' + U8 + "}}"
    ),
    "1 MB of metadata": lambda: file_of('{"__metadata__":{"a":"' + "\\n" * 500_000 + '"}}'),
    "1 MB of escapes in an unknown field": accepted(
        '{"a":{"x":[' + '"\\n",{"\\n":0,"\\t":0},' * 50_000 + "0]," + U8 + "}}"
    ),
    "1 MB of escaped keys in an unknown field": accepted('{"a":{"x":{' + '"\\n":0,' * 140_000 + '"":0},' + U8 + "}}"),
    "our metadata of wrong types": lambda: ours('{"version":"1","kind":7,"crc32c":[]}'),
    "our metadata with a negative version": lambda: ours('{"version":-1,"kind":"arrays"}'),
    "our metadata that is no JSON": lambda: ours("{{{{"),
    "our metadata, nested deeply": lambda: ours("[" * 100_000),
}
