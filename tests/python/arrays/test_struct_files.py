"""Files of C++ structures, seen from Python: their leaves are arrays by name."""

import itertools

import numpy as np
from tests.support.places import GOLDEN

import onecopy as oc

FILE = GOLDEN / "struct.oc"


def test_a_structure_shows_its_leaves_and_hides_its_fillers() -> None:
    with oc.open(FILE) as file:
        assert not [name for name in file if name.startswith("#")]
        assert {"seed", "words", "subs.count", "subs[].name", "subs[].name.offsets", "extra?.nodes"} <= set(file)
        assert file["words"].tolist() == [1, 2, 3]
        assert file["seed"].shape == ()
        assert file["shape"].dtype == np.uint16
        assert file.verify().bytes > 0


def test_a_sequence_of_structs_reads_as_columns() -> None:
    with oc.open(FILE) as file:
        offsets = file["subs[].name.offsets"]
        text = file["subs[].name"].tobytes()
        names = [text[begin:end].decode() for begin, end in itertools.pairwise(offsets)]
        assert names == ["", "one", ""]


def test_plain_structs_view_as_numpy_records() -> None:
    with oc.open(FILE) as file:
        nodes = file["subs[].nodes"].view(np.dtype([("key", "<u4"), ("low", "<u2"), ("high", "<u2")]))
        assert nodes["key"].tolist() == [[1]]
