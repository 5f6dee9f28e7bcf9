"""Folders of models as the tools of users lay them out: most consist of links, which lead out of the folder."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.support.hub_server import downloaded
from tests.support.places import reached_by_all
from tests.support.shards import ARRAYS, INDEX, shard_of, write_set

import onecopy as oc
from onecopy.run.holder import Holder
from onecopy.store.location import files_of

ALICE, BOB = 1_700_000_001, 1_700_000_002


@pytest.fixture
def source(tmp_path) -> Path:
    """Give a folder with an index, its shards, and a model with external data."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    (tmp_path / "source").mkdir()
    write_set(tmp_path / "source")
    weights = [numpy_helper.from_array(ARRAYS["layer.1"], "w")]
    value = helper.make_tensor_value_info("w", 1, [20, 30])
    model = helper.make_model(helper.make_graph([], "g", [], [value], weights))
    onnx.save(model, tmp_path / "source" / "model.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    return tmp_path / "source"


def hub(kind: str) -> Callable[[Path, Path], Path]:
    def lay_out(source: Path, folder: Path) -> Path:
        needed, reason = "huggingface_hub", None
        if kind == "shared":
            needed, reason = "huggingface_hub.utils._shared_blobs", "links to shared blobs: since 2.4"
        pytest.importorskip(needed, reason=reason)
        return downloaded(source, folder, kind)

    return lay_out


def linked_shards(source: Path, folder: Path) -> Path:
    """Lay out as `local_dir` of huggingface_hub before 0.23: small files are copies, others are links to the cache."""
    shutil.copytree(source, folder / "cache")
    (folder / "local").mkdir()
    for one in (folder / "cache").iterdir():
        lay_out = os.symlink if one.suffix in (".safetensors", ".bin") else shutil.copy
        lay_out(one, folder / "local" / one.name)
    return folder / "local"


def versioned(source: Path, folder: Path) -> Path:
    """Lay out as DVC and git-annex do: each file is an absolute link to a read-only object, named by its digest."""
    (folder / "model").mkdir(parents=True)
    for number, one in enumerate(source.iterdir()):
        thing = folder / ".objects" / f"{number:02}" / "digest"
        thing.parent.mkdir(parents=True)
        shutil.copy(one, thing)
        thing.chmod(0o444)
        (folder / "model" / one.name).symlink_to(thing)
    return folder / "model"


def renamed(source: Path, folder: Path) -> Path:
    """Lay out as modelscope does: the name of a model is a link to the folder of its files."""
    shutil.copytree(source, folder / "organisation" / "model___1")
    (folder / "organisation" / "model.1").symlink_to("model___1")
    return folder / "organisation" / "model.1"


LAYOUTS = {
    "hub": hub("cache"),
    "hub, shared blobs": hub("shared"),
    "hub, local_dir": hub("local"),
    "hub, local_dir of links": linked_shards,
    "dvc": versioned,
    "modelscope": renamed,
}


@pytest.mark.parametrize("lay_out", LAYOUTS.values(), ids=LAYOUTS)
def test_a_folder_opens_as_its_tool_lays_it_out(source, tmp_path, lay_out):
    folder = lay_out(source, tmp_path / "laid out")
    for place in (folder, folder / INDEX):
        with oc.open(place) as model:
            assert all(np.array_equal(model[name], array) for name, array in ARRAYS.items())
            assert oc.warm(model).complete
    assert [Path(one).name for one in files_of(os.fspath(folder))] == [INDEX, *(shard_of(at) for at in range(3))]
    with Holder([folder]) as held:
        assert held.files == 4
    with oc.open(folder / "model.onnx") as model:
        assert np.array_equal(model["w"], ARRAYS["layer.1"])


def test_onnx_data_may_go_down_and_up_inside_of_the_folder(source):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(source / "model.onnx", load_external_data=False)
    (source / "data").mkdir()
    (source / "w.bin").rename(source / "data" / "w.bin")
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "./data/../data/w.bin"
    (source / "model.onnx").write_bytes(model.SerializeToString())
    with oc.open(source / "model.onnx") as opened:
        assert np.array_equal(opened["w"], ARRAYS["layer.1"])
    (source / "data").rename(source / "elsewhere")
    (source / "data").symlink_to("elsewhere")
    with pytest.raises(oc.FormatError, match=r"'..' comes after the symbolic link"):
        oc.open(source / "model.onnx")


@pytest.fixture
def shared(tmp_path):
    """Give a folder that every user reaches, with an index whose only shard is to be a link."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files to other users")
    oc.save(tmp_path / "target", {"layer.0": ARRAYS["layer.0"]})
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / INDEX).write_text(json.dumps({"weight_map": {"layer.0": "shard"}}))
    with reached_by_all(tmp_path):
        yield tmp_path


@pytest.mark.parametrize(
    ("link", "file", "mode", "is_followed"),
    [
        ((0, 0), (ALICE, ALICE), 0o600, True),  # this user made it
        ((ALICE, ALICE), (ALICE, ALICE), 0o600, True),  # it leads to a file of the user who made it
        ((ALICE, ALICE), (BOB, BOB), 0o644, True),  # all may read that file
        ((ALICE, BOB), (BOB, BOB), 0o640, True),  # their group may
        ((ALICE, ALICE), (BOB, BOB), 0o640, False),
        ((ALICE, ALICE), (0, 0), 0o600, False),
    ],
)
def test_a_link_of_another_user_leads_to_files_that_this_user_can_read_alone(shared, link, file, mode, is_followed):
    shard, target = shared / "model" / "shard", shared / "target"
    shard.symlink_to(target)
    os.chown(shard, *link, follow_symlinks=False)
    os.chown(target, *file)
    target.chmod(mode)
    if is_followed:
        assert oc.open(shared / "model")["layer.0"].shape == (20, 30)
    else:
        expect_refusal(shared)


@pytest.mark.parametrize("closed", ["outer", "outer/inner"])
def test_a_link_of_another_user_leads_into_no_folder_that_is_closed_to_them(shared, closed):
    (shared / "outer" / "inner").mkdir(parents=True)
    target = (shared / "target").rename(shared / "outer" / "inner" / "target")
    (shared / "model" / "shard").symlink_to(target)
    os.chown(shared / "model" / "shard", ALICE, ALICE, follow_symlinks=False)
    for path, mode in ((target, 0o644), (target.parent, 0o755), (target.parent.parent, 0o755)):
        path.chmod(mode)
    assert oc.open(shared / "model")["layer.0"].shape == (20, 30)
    (shared / closed).chmod(0o700)
    expect_refusal(shared)


def test_a_link_of_another_user_to_a_folder_leads_to_its_files_that_this_user_can_read_alone(shared):
    (shared / "files").mkdir(mode=0o755)
    target = (shared / "target").rename(shared / "files" / "target")
    (shared / "model" / "sub").symlink_to(shared / "files")
    os.chown(shared / "model" / "sub", ALICE, ALICE, follow_symlinks=False)
    (shared / "model" / INDEX).write_text(json.dumps({"weight_map": {"layer.0": "sub/target"}}))
    target.chmod(0o600)
    expect_refusal(shared)
    target.chmod(0o644)
    assert oc.open(shared / "model")["layer.0"].shape == (20, 30)


def expect_refusal(shared: Path) -> None:
    with pytest.raises(oc.FormatError, match=rf"link of user {ALICE}, who cannot read .*target") as error:
        oc.open(shared / "model")
    assert str(shared / "model" / INDEX) in str(error.value)
