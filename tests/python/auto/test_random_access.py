"""An index larger than half of the memory is mapped so that a fault reads one page, whatever the disk reads ahead."""

from pathlib import Path

import numpy as np
import pytest
from tests.support.children import call_in_child


def flags_at(address: int) -> list[str]:
    """Return the flags of the mapping at an address, as the kernel shows them."""
    found = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0]:
            begin, end = (int(word, 16) for word in words[0].split("-"))
            found = begin <= address < end
        elif found and words[0] == "VmFlags:":
            return words[1:]
    raise AssertionError(f"no mapping at {address:#x}")


@pytest.mark.parametrize(
    ("random", "fits", "one_page"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_only_what_is_read_here_and_there_and_does_not_fit_is_not_read_ahead(
    tmp_path, monkeypatch, random, fits, one_page
):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "store"))
    path = tmp_path / "index"
    path.write_bytes(bytes(4 << 20))

    def child() -> list[str]:
        from onecopy.run import mapped  # it replaces functions of numpy

        mapped.fits_in_memory = lambda _: fits
        with mapped.source_of("faiss.read_index", str(path)) as source:
            array = source.array(0, (source.nbytes,), np.dtype(np.uint8), random=random)
        return flags_at(array.ctypes.data)

    assert ("rr" in call_in_child(child)) == one_page
