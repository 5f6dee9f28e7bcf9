"""Every way of opening takes a URL, and finds the files that a file names."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.support import shards

import onecopy as oc
from onecopy import records
from onecopy_remote import fetch

ARRAYS = {"weight": np.arange(12.0).reshape(3, 4), "bias": np.ones(3, np.float32)}

pytestmark = pytest.mark.usefixtures("own_store")


@pytest.fixture
def put_all(objects):
    """Give a function that puts the files of a folder on the server, below "model/"."""

    def put(folder: Path) -> str:
        for path in folder.rglob("*"):
            if path.is_file():
                objects.put(f"model/{path.relative_to(folder)}", path.read_bytes())
        return f"{objects.url}/model"

    return put


def equal(file, arrays) -> bool:
    return sorted(file) == sorted(arrays) and all(np.array_equal(file[name], arrays[name]) for name in arrays)


def test_arrays_are_opened_by_url(tmp_path, put_all):
    (tmp_path / "out").mkdir()
    oc.save(tmp_path / "out/model.safetensors", ARRAYS)
    with oc.open(f"{put_all(tmp_path / 'out')}/model.safetensors?sig=1", verify=True) as file:
        assert equal(file, ARRAYS)
        assert file.path.endswith("/model.safetensors")


def test_the_shards_of_an_index_are_fetched_with_it(tmp_path, put_all, objects):
    (tmp_path / "out").mkdir()
    shards.write_set(tmp_path / "out")
    url = put_all(tmp_path / "out")
    with oc.open(f"{url}/{shards.INDEX}?sv=1&sig=1") as file:
        assert equal(file, shards.ARRAYS)
    assert {one.query for one in objects.requests} == {"sv=1&sig=1"}
    served = objects.served
    with oc.open(f"{url}/{shards.INDEX}") as file:
        assert equal(file, shards.ARRAYS)
    assert objects.served == served + 4  # the first byte of the index and of each shard
    objects.contents.pop(f"model/{shards.shard_of(1)}")
    with pytest.raises(FileNotFoundError) as raised:
        oc.open(f"{url}/{shards.INDEX}")
    assert raised.value.filename == f"{url}/{shards.shard_of(1)}"


def test_an_onnx_model_is_fetched_with_its_external_data(tmp_path, put_all):
    models = pytest.importorskip("tests.support.onnx_models", reason="onnx is not installed", exc_type=ImportError)
    (tmp_path / "out/data").mkdir(parents=True)
    models.save_external(tmp_path / "out/model.onnx", "data/weights.bin")
    with oc.open(f"{put_all(tmp_path / 'out')}/model.onnx") as file, oc.open(tmp_path / "out/model.onnx") as expected:
        assert equal(file, expected)
        assert len(file.files) == 2


def test_records_and_rows_are_opened_by_url(tmp_path, put_all, objects):
    (tmp_path / "out").mkdir()
    records.save(tmp_path / "out/names.oc", ["Ada", "Grace"])
    assert list(oc.open_records(f"{put_all(tmp_path / 'out')}/names.oc", oc.records.List)) == ["Ada", "Grace"]
    url = objects.put("rows.jsonl", b'{"a": 1}\n{"a": 2}\n')
    assert [dict(row) for row in records.import_jsonl(url, tmp_path / "rows.oc")] == [{"a": 1}, {"a": 2}]


def test_images_are_opened_by_url(tmp_path, objects):
    tifffile = pytest.importorskip("tifffile")
    pixels = np.arange(600, dtype=np.uint8).reshape(20, 30)
    tifffile.imwrite(tmp_path / "x.tif", pixels, compression="zlib")
    image = oc.images.open(objects.put("x.tif", (tmp_path / "x.tif").read_bytes()), store=tmp_path / "store")
    assert np.array_equal(image.array, pixels)


def test_a_module_is_loaded_by_url(tmp_path, put_all):
    torch = pytest.importorskip("torch")
    (tmp_path / "out").mkdir()
    oc.save(tmp_path / "out/m.safetensors", {"weight": ARRAYS["weight"].astype(np.float32), "bias": ARRAYS["bias"]})
    module = torch.nn.Linear(4, 3)
    oc.torch.load_into(module, f"{put_all(tmp_path / 'out')}/m.safetensors")
    assert np.array_equal(module.weight.detach().numpy(), ARRAYS["weight"])


def test_processes_share_one_fetch(objects, own_store):
    content = os.urandom(20 << 20)
    url = objects.put("x", content)
    code = "import os, sys; from onecopy.remote import fetch; print(os.stat(fetch(sys.argv[1])).st_ino)"
    running = [
        subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    ended = [process.communicate(timeout=120) for process in running]
    assert [process.returncode for process in running] == [0] * 4, ended
    assert len({out for out, _ in ended}) == 1
    assert objects.served == len(content) + 4
    assert [artefact.state for artefact in own_store.ls()] == ["ready"]


def test_a_killed_fetch_is_continued_by_another_process(objects, own_store):
    content = os.urandom(64 << 20)
    url = objects.put("x", content)
    code = "import sys; from onecopy.remote import fetch; print(fetch(sys.argv[1], connections=2))"
    process = subprocess.Popen([sys.executable, "-c", code, url], stdout=subprocess.PIPE, text=True)

    def kill_at_the_fifth(_):
        if len(objects.data_requests) == 5:
            process.kill()

    objects.on_data = kill_at_the_fifth
    assert process.communicate(timeout=120)[0] == ""
    assert process.returncode == -9
    assert "partial" in {artefact.state for artefact in own_store.ls()}
    objects.on_data = None
    before = objects.asked
    assert fetch(url).read_bytes() == content
    # Three pieces at least were whole at the fifth request; a sixth may have been on its way.
    assert 0 < objects.asked - before <= len(content) - 2 * (8 << 20)
    assert [artefact.state for artefact in own_store.ls()] == ["ready"]


def test_a_full_disk_is_an_error_that_names_what_is_needed(tmp_path, objects, small_disk):
    url = objects.put("x", os.urandom(12 << 20))
    code = f"""
import sys
from pathlib import Path
from tests.support.small_disks import mount
from onecopy_remote import fetch
disk = Path({str(tmp_path / "disk")!r})
mount("ext4", disk)
disk.chmod(0o700)
try:
    fetch({url!r}, store=disk / "store")
except OSError as error:
    print(error.errno, error.strerror, Path(error.filename).suffix)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd())
    assert re.fullmatch(
        r"28 No space left on device: 12\.6 MB .* \S+ [kM]B .*`onecopy store prune`.* \.partial\n", done.stdout
    ), done.stderr
    assert objects.served <= 2


def test_the_verb_prints_the_path_and_no_secret(objects, onecopy_command):
    objects.put("m.safetensors", b"\2\0\0\0\0\0\0\0{}")
    done = onecopy_command("fetch", f"{objects.url}/m.safetensors?sv=1&sig=s3cret")
    assert Path(done.stdout.strip()).read_bytes() == b"\2\0\0\0\0\0\0\0{}"
    assert done.stderr.startswith(f"{objects.url}/m.safetensors: 10 B in ")
    assert "s3cret" not in done.stdout + done.stderr
    facts = json.loads(onecopy_command("fetch", "--json", f"{objects.url}/m.safetensors").stdout)
    assert facts[0]["path"] == done.stdout.strip()
    failed = onecopy_command("fetch", f"{objects.url}/missing?sig=s3cret")
    assert failed.returncode == 1
    assert failed.stderr == f"onecopy: {objects.url}/missing: the server answered 404 Not Found\n"
    assert onecopy_command("fetch", "/etc/passwd").returncode == 2
