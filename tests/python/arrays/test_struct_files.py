"""Files of C++ structures, seen from Python: their leaves are arrays by name."""

import itertools

import numpy as np
from tests.support.places import GOLDEN

import onecopy as oc

FILE = GOLDEN / "struct.oc"


def test_leaves_are_arrays_sequences_are_columns_plain_structs_are_records_and_fillers_are_hidden() -> None:
    with oc.open(FILE) as file:
        assert not [name for name in file if name.startswith("#")]
        assert {"seed", "words", "subs.count", "subs[].name", "subs[].name.offsets", "extra?.nodes"} <= set(file)
        assert file["words"].tolist() == [1, 2, 3]
        assert file["seed"].shape == ()
        assert file["shape"].dtype == np.uint16
        assert file.verify().bytes > 0
        offsets = file["subs[].name.offsets"]
        text = file["subs[].name"].tobytes()
        names = [text[begin:end].decode() for begin, end in itertools.pairwise(offsets)]
        assert names == ["", "one", ""]
        nodes = file["subs[].nodes"].view(np.dtype([("key", "<u4"), ("low", "<u2"), ("high", "<u2")]))
        assert nodes["key"].tolist() == [[1]]
