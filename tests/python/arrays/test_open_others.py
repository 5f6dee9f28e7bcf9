"""Other tools' files behind `oc.open`: what the tools themselves read from the golden files, and nothing executed."""

import json
import pickle
import zipfile
from pathlib import Path

import pytest
from tests.support.places import GOLDEN

import onecopy as oc

LINES = [
    (folder, line.split(" "))
    for folder in ("numpy", "torch")
    for line in (GOLDEN / folder / "expected.txt").read_text().splitlines()
]
REFUSED = [(folder, line[0], " ".join(line[2:])) for folder, line in LINES if line[1] == "refused"]
ARRAYS = [(folder, *line) for folder, line in LINES if line[1] != "refused"]


def numbers(text: str) -> tuple[int, ...]:
    return () if text == "-" else tuple(map(int, text.split(",")))


@pytest.mark.parametrize(("folder", "name", "array", "kind", "shape", "strides", "elements"), ARRAYS)
def test_an_array_is_what_the_tool_wrote(folder, name, array, kind, shape, strides, elements):
    with oc.open(GOLDEN / folder / name) as file:
        assert file.entry(array).dtype == kind
        view = file[array]
        if view.dtype.metadata:  # a type of torch's own: bytes under its name
            assert view.dtype.metadata == {"onecopy": kind}
            assert view.tobytes() == bytes.fromhex(elements)
            return
        assert view.shape == numbers(shape)
        assert view.tobytes() == bytes.fromhex(elements.replace("-", ""))
        if numbers(strides):
            assert tuple(step // view.itemsize for step in view.strides) == numbers(strides)
        assert not view.flags.writeable


def test_what_is_in_no_array_is_told_in_the_metadata():
    with oc.open(GOLDEN / "numpy" / "mixed.npz") as file:
        assert json.loads(file.metadata["left out"]) == {
            "compressed": ["packed"],
            "Python objects or structures": ["objects"],
            "not an array": ["notes.txt"],
        }
    with oc.open(GOLDEN / "torch" / "nested.pt") as file:
        assert "argparse.Namespace" in json.loads(file.metadata["left out"])
        assert file.metadata["format"] == "pt"


@pytest.mark.parametrize(("folder", "name", "why"), REFUSED)
def test_a_file_that_cannot_be_read_in_place_gives_the_reason(folder, name, why):
    with pytest.raises(oc.FormatError) as error:
        oc.open(GOLDEN / folder / name)
    assert why in str(error.value)
    assert str(GOLDEN / folder / name) in str(error.value)


def test_a_zip_archive_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "archive.pt2"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/models/model.json", "{}")
        archive.writestr("model/byteorder", "little")
    with pytest.raises(oc.FormatError, match=r"neither torch\.save nor numpy\.savez wrote it"):
        oc.open(path)
    with zipfile.ZipFile(GOLDEN / "torch" / "state_dict.pt") as before, zipfile.ZipFile(path, "w", 8) as after:
        for name in before.namelist():
            after.writestr(name, before.read(name))
    with pytest.raises(oc.FormatError, match="compressed"):
        oc.open(path)


class Trap:
    """Unpickled, it would leave a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def test_a_checkpoint_is_never_unpickled(tmp_path):
    trap = tmp_path / "executed"
    path = tmp_path / "bad.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("bad/data.pkl", pickle.dumps({"w": Trap(str(trap))}, 2))
        archive.writestr("bad/version", "3\n")
        archive.writestr("bad/data/0", bytes(16))
    with pytest.raises(oc.FormatError):
        oc.open(path)
    assert not trap.exists()


def test_quantised_blocks_are_bytes_under_the_name_of_their_type():
    with oc.open(GOLDEN / "gguf" / "small.gguf") as model:
        assert model.container == "gguf"
        raw = [entry for entry in model.entries if model[entry.name].dtype.metadata]
        assert raw
        for entry in raw:
            assert model[entry.name].dtype.metadata == {"onecopy": entry.dtype}
            assert model[entry.name].nbytes == entry.nbytes
        assert model.metadata["general.architecture"]


@pytest.mark.parametrize(
    ("name", "container"), [("ort/small.ort", "ort"), ("executorch/small.pte", "pte"), ("executorch/small.ptd", "ptd")]
)
def test_flatbuffers_open_in_place(name, container):
    with oc.open(GOLDEN / name) as file:
        assert file.container == container
        assert len(file) > 0
        size = (GOLDEN / name).stat().st_size
        for entry in file.entries:
            assert file[entry.name].nbytes == entry.nbytes
            assert entry.offset + entry.nbytes <= size
