"""Errors: one base, kinds that programs can compare, and pickles that keep them."""

import pickle
import struct

import pytest
from tests.support.safetensors_files import file_of

import onecopy as oc
from onecopy.errors import Kind, retyped

ENTRY = b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}'
GGUF = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q1sIQIQ", 1, b"w", 1, 4, 0, 1 << 20)
SPOILED = {
    Kind.NOT_THIS_FORMAT: (b"\x89PNG\r\n\x1a\n" + bytes(100), None),
    Kind.UNSUPPORTED: (file_of(ENTRY.replace(b"U8", b"U9"), b"1234"), None),
    Kind.TRUNCATED: (b"1234567", 7),
    Kind.MALFORMED: (file_of(ENTRY + b"x", b"1234"), 8 + len(ENTRY)),
    Kind.INCONSISTENT: (file_of(ENTRY, b"12345"), 8 + len(ENTRY) + 4),
    Kind.TOO_COSTLY: (file_of(b'{"a":{"x":' + b"[" * 100, b""), 8 + 72),
    Kind.OUT_OF_BOUNDS: (GGUF + bytes(-len(GGUF) % 32 + 32), None),
}


@pytest.mark.parametrize("kind", Kind)
def test_each_kind_of_damage_is_told_with_its_place(tmp_path, kind):
    contents, offset = SPOILED[kind]
    path = tmp_path / "weights"
    path.write_bytes(contents)
    with pytest.raises(oc.FormatError) as raised:
        oc.open(path)
    assert (raised.value.kind, raised.value.offset, raised.value.path) == (kind, offset, str(path))
    assert str(raised.value).startswith(f"{path}: ")
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again), vars(again)) == (oc.FormatError, str(raised.value), vars(raised.value))


def test_an_error_made_in_python_has_a_kind_a_path_and_a_place():
    error = oc.FormatError("cut off", Kind.TRUNCATED, path="a.bin", offset=7, found="pickle")
    facts = (error.kind, error.path, error.offset, error.found)
    assert (str(error), facts) == ("a.bin: cut off", (Kind.TRUNCATED, "a.bin", 7, "pickle"))
    assert str(pickle.loads(pickle.dumps(error))) == "a.bin: cut off"
    plain = oc.FormatError("wrong")
    assert (str(plain), plain.kind, plain.path, plain.offset, plain.found) == (
        "wrong",
        Kind.MALFORMED,
        None,
        None,
        None,
    )
    other = retyped(error, oc.ChecksumError, "a.bin: other words")
    assert (type(other), str(other), vars(other)) == (oc.ChecksumError, "a.bin: other words", vars(error))


def test_every_exception_of_the_package_is_an_error_of_onecopy(python):
    code = """
        import importlib, pkgutil
        import onecopy as oc
        found = set()
        packages = {each.__name__: each.__path__ for each in (oc, oc.images, oc.records)}
        for module in (one for name, path in packages.items() for one in pkgutil.walk_packages(path, f"{name}.")):
            if module.name.endswith("__main__") or ".auto" in module.name:
                continue
            try:
                names = vars(importlib.import_module(module.name))
            except ImportError:  # of a framework that is not installed
                continue
            found |= {one for one in names.values() if isinstance(one, type) and issubclass(one, Exception)}
        ours = {one for one in found if one.__module__.split(".")[0] in packages and one.__name__[0] != "_"}
        assert {oc.Error, oc.FormatError, oc.DataLost, oc.errors.NotShareable} < ours
        print(*(one for one in ours if not issubclass(one, oc.Error)))
    """
    assert python(code).strip() == ""
