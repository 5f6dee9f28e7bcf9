"""Shared datasets and processes: one decodes for all, a killed one leaves what it decoded, full disks are reported."""

import os
import signal
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from tests.support.children import fork, status_of
from tests.support.images import photo
from tests.support.store_processes import suffixes
from tests.support.waiting import until

import onecopy as oc
from onecopy_images import Images
from onecopy_monitor import assert_shared

pictures = pytest.importorskip("PIL.Image")

pytestmark = pytest.mark.processes


class Logging:
    """A transform that writes a line for each image, and stops for ever at the number in the environment."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def __call__(self, image: np.ndarray) -> np.ndarray:
        number = int(image[0, 0, 0])
        with self.log.open("a") as file:
            file.write(f"{number}\n")
        if str(number) == os.environ.get("TEST_STOP_AT"):  # which is no part of the key
            signal.pause()
        return image

    def numbers(self) -> list[int]:
        return list(map(int, self.log.read_text().split())) if self.log.exists() else []


def save_numbered(folder: Path, count: int) -> list[Path]:
    """Save images whose pixels are all their number."""
    paths = [folder / f"{number:03}.png" for number in range(count)]
    for number, path in enumerate(paths):
        pictures.new("RGB", (30, 20), (number,) * 3).save(path)
    return paths


def test_of_processes_that_ask_at_once_exactly_one_decodes(tmp_path):
    paths, count = save_numbered(tmp_path, 50), Logging(tmp_path / "log")
    go, start = os.pipe()

    def ask() -> bool:
        os.close(start)
        os.read(go, 1)  # until all are there
        images = oc.images.share(paths, transform=count, store=oc.Store(tmp_path / "store", on_wait=None))
        return bool((images.array == np.arange(50).reshape(50, 1, 1, 1)).all())

    pids = [fork(ask) for _ in range(20)]
    os.close(start)
    os.close(go)
    assert [status_of(pid) for pid in pids] == [0] * 20
    assert sorted(count.numbers()) == [0, *range(50)]  # the first of a shape is seen twice
    assert suffixes(oc.Store(tmp_path / "store")) == [".about", ".oc"]


@pytest.mark.parametrize("where", ["here", "fork"])
def test_what_a_killed_process_has_decoded_is_not_decoded_again(tmp_path, monkeypatch, where):
    paths, store = save_numbered(tmp_path, 60), oc.Store(tmp_path / "store", where=where)
    killed, going_on = Logging(tmp_path / "log"), Logging(tmp_path / "log")
    monkeypatch.setenv("TEST_STOP_AT", "40")
    pid = fork(lambda: oc.images.share(paths, transform=killed, threads=1, store=store) is not None)
    monkeypatch.delenv("TEST_STOP_AT")
    until(lambda: 40 in killed.numbers(), "the image at which the process stops")
    os.kill(pid, signal.SIGKILL)
    assert status_of(pid) == -signal.SIGKILL
    assert {".partial", ".pieces"} <= set(suffixes(store))
    before = killed.numbers()
    images = oc.images.share(paths, transform=going_on, store=store)
    assert (images.array == np.arange(60).reshape(60, 1, 1, 1)).all()
    after = going_on.numbers()[len(before) :]
    assert sorted(after) == [0, *range(40, 60)]  # the first again for its shape, and the one that was not finished
    assert suffixes(store) == [".about", ".oc"]
    assert store.ls()[0].key == images.report.key


def look(images: Images, number: int) -> tuple[int, str]:
    return int(images[number].sum()), images.paths[number]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_every_start_method_map_the_file(tmp_path, method):
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        photo(number, (500 + number, 700)).save(path)
    images = oc.images.share(paths, store=tmp_path / "store")
    with get_context(method).Pool(2) as pool:
        found = pool.starmap(look, [(images, number) for number in (0, 1, 2)] * 4)
        assert found == [(int(images[number].sum()), str(paths[number])) for number in (0, 1, 2)] * 4
        if method == "fork":
            assert len(assert_shared(images, pool).workers) == 2
        pool.close()
        pool.join()


def test_a_second_start_imports_no_decoder(python, tmp_path):
    oc.images.share(save_numbered(tmp_path, 3), store=tmp_path / "store").close()
    code = """
        import sys
        import onecopy as oc
        with oc.images.share(sys.argv[1] + "/*.png", store=sys.argv[1] + "/store") as images:
            print(images.report.built, images[2].max(), "PIL" in sys.modules)
        """
    assert python(code, tmp_path).split() == ["False", "2", "False"]


def test_decoding_takes_the_memory_of_a_few_images_and_not_of_all(python, tmp_path):
    for number in range(40):
        pictures.new("RGB", (1500, 1000), (number, 2, 3)).save(tmp_path / f"{number:02}.png")
    code = """
        import resource, sys
        import PIL.Image, onecopy as oc
        from onecopy_images import _pillow, sharing
        with oc.images.share([sys.argv[1] + "/00.png"], store=sys.argv[1] + "/store", threads=2) as one:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        store = oc.Store(sys.argv[1] + "/store", where="here")
        with oc.images.share(sys.argv[1] + "/*.png", store=store, threads=2) as images:
            print(images.nbytes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
    """
    decoded, grown = map(int, python(code, tmp_path).split())
    assert decoded == 40 * 1000 * 1500 * 3
    assert grown < decoded / 3
