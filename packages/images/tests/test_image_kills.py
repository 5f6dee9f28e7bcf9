"""Processes that are killed while they decode images: no partial image and no other file stays.

30 rounds of killing; with ONECOPY_TORTURE=1, 500.
"""

import random
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from tests.support.announcing import Announcing
from tests.support.images import noise, save_compressed
from tests.support.rounds import rounds
from tests.support.store_processes import suffixes

import onecopy as oc

tifffile = pytest.importorskip("tifffile")
pytest.importorskip("imagecodecs")

ROUNDS = rounds(30, 500)

pytestmark = pytest.mark.processes


@pytest.mark.slow
@pytest.mark.timeout(60 + ROUNDS)
def test_whoever_is_killed_while_decoding_leaves_no_image_and_no_file(needs_unnamed_files, tmp_path):
    rng, expected = random.Random(1), noise((3000, 2000))
    picture = save_compressed(tmp_path / "picture.tif", expected)
    start = time.perf_counter()
    oc.images.open(picture, store=tmp_path / "other").close()  # imports what is needed
    seconds = time.perf_counter() - start
    store = oc.Store(tmp_path / "store")

    def decode(announce: Callable[[], object], share: float | None) -> bool:
        def stop(done: int, total: int) -> None:
            if share is not None and done >= share * total:
                announce()

        image = oc.images.open(picture, store=store.folder, progress=stop)
        announce()
        return image.array is not None

    moments = {"at the first strip": 0, "at the last strip": 1, "with the image": None, "at any moment": None}
    left = {moment: Counter[tuple[str, ...]]() for moment in moments}
    for number in range(ROUNDS):
        moment = list(moments)[number % len(moments)]
        process = Announcing(lambda announce, share=moments[moment]: decode(announce, share))
        if moment == "at any moment":
            time.sleep(rng.uniform(0, seconds))
        process.kill(at_once=moment == "at any moment")
        names = suffixes(store)
        left[moment][tuple(names)] += 1
        assert set(names) <= {".oc", ".about", ".claim"}
        image = oc.images.open(picture, store=oc.Store(store.folder, timeout=0))  # the claim of a killed one is void
        assert np.array_equal(image.array, expected)
        assert image.artefact.built or {".oc", ".about"} <= set(names)
        image.close()
        described = {".oc", ".about", ".claim"} <= set(names)  # killed before it removed its claim: left to prune
        assert suffixes(store) == ([".about", ".claim", ".oc"] if described else [".about", ".oc"])
        store.prune(everything=True)
        assert suffixes(store) == []
    rounds = ROUNDS // len(moments)
    assert left["at the first strip"].keys() == left["at the last strip"].keys() == {(".claim",)}
    assert left["with the image"].keys() == {(".about", ".oc")}
    assert min(counted.total() for counted in left.values()) >= rounds
