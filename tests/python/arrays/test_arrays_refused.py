"""Files that are no files of arrays, damaged ones, and shapes that numpy cannot have: errors that name the file."""

import re

import numpy as np
import pytest

import onecopy as oc
from onecopy.errors import Kind


@pytest.mark.parametrize("name", ["a" * 199 + "é", "before\0after"])
def test_a_format_error_can_name_any_array_and_any_file(write_tensors, name):
    path = write_tensors({name: ("F128", [1], b"x")})
    path = path.rename(path.with_name("spoiled\udcff"))
    with pytest.raises(oc.FormatError, match="unknown dtype") as raised:
        oc.open(path)
    assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize("open_", [oc.open, oc.open_records, oc.images.open], ids=lambda one: one.__qualname__)
def test_a_misspelt_url_is_reported_with_the_schemes_that_are_fetched(open_):
    with pytest.raises(FileNotFoundError, match=r"beginning with one of .*https, s3") as raised:
        open_("s4://bucket/model.safetensors")
    assert raised.value.filename == "s4://bucket/model.safetensors"


def test_a_damaged_header_is_reported(tmp_path):
    path = tmp_path / "ours.safetensors"
    oc.save(path, {"w": np.zeros(24), "b": np.zeros(4)})
    path.write_bytes(path.read_bytes().replace(b'"w"', b'"v"', 1))
    with pytest.warns(UserWarning, match="checksum") as told:
        file = oc.open(path)
    assert (told[0].filename, list(file), file.kind) == (__file__, ["v", "b"], "foreign")


def test_a_shape_that_numpy_cannot_have_names_the_array(write_tensors) -> None:
    shape = [1] * 65 + [4]
    with oc.open(write_tensors({"strange": ("U8", shape, bytes(4))})) as file:
        with pytest.raises(oc.FormatError, match="'strange': numpy cannot represent its shape"):
            file["strange"]
        assert file.entry("strange").shape == tuple(shape)


MISTAKES = {
    b"\x89PNG\r\n\x1a\n": ("PNG image", "onecopy.images.open"),
    b"\xff\xd8\xff\xe0": ("JPEG image", "onecopy.images.open"),
    b"II+\0\x08\0\0\0": ("BigTIFF image", "onecopy.images.open"),
    b"PAR1": ("Parquet file", "onecopy.records.import_parquet"),
    b"version https://git-lfs.github.com/spec/v1\noid": ("git-lfs pointer", "git lfs pull"),
    b"<!DOCTYPE html>\n<html>": ("HTML page", "failed download"),
    b"<html><body>": ("HTML page", "failed download"),
    b"<?xml version='1.0'?><Error>": ("XML document", "failed download"),
    b"\x89HDF\r\n\x1a\n": ("HDF5 file", ""),
    b"SQLite format 3\0": ("SQLite database", ""),
    b"\x80\x04\x95": ("pickle", "never read"),
    b"\x80\x02}q\x00": ("pickle", "never read"),
    b"\x1f\x8b\x08": ("gzip file", "decompress"),
    b"\x7f" + bytes(1000) + b"oc-ort-1": ("weights that were prepacked for ONNX Runtime", ""),
}


@pytest.mark.parametrize("content", MISTAKES)
def test_what_is_opened_by_mistake_is_named_in_the_error(tmp_path, content):
    path, (found, advice) = tmp_path / "model.bin", MISTAKES[content]
    path.write_bytes(content if content.endswith(b"oc-ort-1") else content + bytes(100))
    with pytest.raises(oc.FormatError) as raised:
        oc.open(path)
    assert (raised.value.kind, raised.value.path, raised.value.found) == (Kind.NOT_THIS_FORMAT, str(path), found)
    assert re.search(rf"expected a file of arrays, found (an? )?{found}", str(raised.value))
    assert advice in str(raised.value)


@pytest.mark.parametrize("text", ["a,b\n1,2\n3,4\n", '[{"id": 1}]', "Not Found\n" * 100])
def test_text_is_named_with_the_command_that_reads_rows(tmp_path, text):
    path = tmp_path / "model.safetensors"
    for content, found in ((text, "text"), ('{"id": 1}', "JSON"), (text[:7] + "\0", None)):
        path.write_text(content)
        with pytest.raises(oc.FormatError) as raised:
            oc.open(path)
        assert (raised.value.path, raised.value.found) == (str(path), found)
        assert ("onecopy import" in str(raised.value)) == (found == "text")


def test_a_path_that_cannot_be_pinned_is_refused_with_what_can(tmp_path):
    with pytest.raises(TypeError, match=r"open the file with onecopy\.Mapping\(path\)"):
        oc.files.pin(tmp_path / "model.bin")
