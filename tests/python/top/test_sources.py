"""What a caller names is one local file: the folder of a model, a link into it, a URL."""

import shutil

import numpy as np
import pytest
from tests.support.shards import ARRAYS, write_set

import onecopy as oc
from onecopy.store.location import in_folder, resolve, url_of


@pytest.mark.parametrize("sharded", [False, True])
def test_the_folder_of_a_model_is_opened_as_its_weights(tmp_path, sharded):
    for name in ("config.json", "generation_config.json"):
        (tmp_path / name).write_text("{}")
    file = write_set(tmp_path) if sharded else tmp_path / "model.safetensors"
    if not sharded:
        oc.save(file, ARRAYS)
        oc.save(tmp_path / "consolidated.safetensors", {"other": np.zeros(3)})
    for named in (tmp_path, f"{tmp_path}/"):
        with oc.open(named, warm=True) as model:
            assert model.path == in_folder(str(named))
            assert np.array_equal(model["layer.4"], ARRAYS["layer.4"])
            assert list(oc.open(named, names=["layer.1"])) == ["layer.1"]


@pytest.mark.parametrize("name", ["adapter.safetensors", "encoder.onnx", "tf.safetensors.index.json"])
def test_the_only_file_of_arrays_of_a_folder_is_opened(tmp_path, name):
    (tmp_path / name).touch()
    (tmp_path / "readme.md").touch()
    assert in_folder(str(tmp_path)) == str(tmp_path / name)
    with pytest.raises(OSError, match="empty") as raised:
        oc.open(tmp_path)
    assert raised.value.filename == str(tmp_path / name)


def test_a_folder_with_no_file_of_arrays_or_several_is_refused_with_what_can_be_opened(tmp_path):
    for names in ((), ("b.safetensors", "a.safetensors")):
        for name in names:
            (tmp_path / name).touch()
        with pytest.raises(IsADirectoryError) as raised:
            oc.open(tmp_path)
        assert raised.value.filename == str(tmp_path)
        assert raised.value.strerror.endswith(f"open a file in it, such as {tmp_path / 'a.safetensors'}") == bool(names)


def test_commands_take_the_folder_of_a_model(tmp_path, onecopy_process):
    write_set(tmp_path)
    for words in (["ls"], ["warm"], ["verify"], ["evict"]):
        done = onecopy_process(*words, tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), words
    target = tmp_path.parent / "one.safetensors"
    assert onecopy_process("convert", tmp_path, target).returncode == 0
    assert sorted(oc.open(target)) == sorted(ARRAYS)


def test_a_source_is_a_path_an_open_artefact_or_a_url_that_was_not_fetched(tmp_path):
    path = tmp_path / "w.safetensors"
    oc.save(path, {"w": np.arange(3)})
    assert resolve(path) == (str(path), None)
    assert resolve(path.as_uri()) == (str(path), None)
    assert url_of(path) == url_of(path.as_uri()) == url_of("a://b") == ""
    assert url_of("S3://bucket/model.safetensors") == "S3://bucket/model.safetensors"
    artefact = oc.Store(tmp_path / "store").get_or_build("key", lambda target: shutil.copy(path, target))
    assert resolve(artefact) == (str(artefact.path), artefact.handle)
    artefact.path.unlink()
    assert oc.open(artefact)["w"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="`nodes` requires a URL"):
        oc.open(path, nodes="torchrun")
    for wrong in ("a\0b", "ftp://user:secret@host/x"):
        with pytest.raises(ValueError, match=r"null byte|unsupported protocol"):
            resolve(wrong)
