"""`onecopy.records` and `onecopy_records` are names of one package, and its modules have both, in pickles too."""

import functools
import pickle

import pytest
from tests.support.places import GOLDEN

import onecopy as oc
from onecopy.store.packages import package_of
from onecopy_records import Ragged, Unloaded, row_files, schema, sharing
from onecopy_records.rows import open_records
from onecopy_records.shuffle import Shuffle
from onecopy_records.torch_datasets import Attribute, ShareReport


@pytest.mark.parametrize("first", ["onecopy_records", "onecopy"])
def test_both_names_are_one_package_whichever_is_imported_first(python, first):
    code = f"""
        import sys
        import {first}
        import onecopy as oc
        import onecopy.records.rows, onecopy_records.rows, onecopy.data.rows
        from onecopy.records import schema, sharing
        from onecopy.data import types
        from onecopy import records
        assert oc.records is onecopy.records is records is onecopy_records is sys.modules["onecopy.records"]
        assert onecopy.records.rows is onecopy_records.rows is onecopy.data.rows is sys.modules["onecopy_records.rows"]
        assert onecopy.records.List is onecopy_records.rows.List
        assert schema is sys.modules["onecopy_records.schema"] and sharing is sys.modules["onecopy_records.sharing"]
        assert types is sys.modules["onecopy_records.types"]
        assert oc.share is sharing.share
    """
    python(code)


def test_a_pickle_that_was_written_before_the_package_moved_loads():
    objects = pickle.loads((GOLDEN / "records/names.pickle").read_bytes())
    order = Shuffle(1000, seed=7)
    order.set_epoch(2)
    assert list(objects.pop("order")) == list(order[10:20])
    opened, shared, rows = objects.pop("open"), objects.pop("share"), objects.pop("rows")
    assert (opened.func, opened.args) == (open_records, ("rows.oc",))
    assert (shared.func, shared.keywords) == (sharing.share, {"codec": "pickle"})
    assert (type(rows), rows.container) == (oc.records.RowSource, "list")
    assert objects == {
        "ragged": Ragged([1, 2, 3], [0, 2, 3]),
        "report": ShareReport((Attribute("samples", "list", 2, 5000, 100, "now a List"),)),
        "schema": oc.share([{"id": 1, "box": [0.5]}]).schema,
        "unloaded": Unloaded("torch.Tensor", ("", None)),
    }
    assert type(objects["schema"]) is schema.Schema


@pytest.mark.parametrize("former", [b"onecopy.records.", b"onecopy.data."])
def test_a_handle_that_names_the_former_modules_maps_the_same_rows(tmp_path, python, former):
    oc.records.save(tmp_path / "rows.oc", [{"id": 7}, {"id": 8}])
    rows = oc.open_records(tmp_path / "rows.oc")
    written = pickle.dumps([rows, rows[1:], rows.schema, Shuffle(5, seed=1)], 2)  # protocol 2: names in one line
    assert written.count(b"onecopy_records.") == 3
    (tmp_path / "handles.pickle").write_bytes(written.replace(b"onecopy_records.", former))
    code = """
        import pickle, sys
        rows, part, schema, order = pickle.load(open(sys.argv[1], "rb"))
        print(type(rows), rows[0], part[0], schema, sorted(order))
    """
    expected = "<class 'onecopy_records.rows.Table'> {'id': 7} {'id': 8} id: int8 [0, 1, 2, 3, 4]\n"
    assert python(code, tmp_path / "handles.pickle") == expected


def test_a_partial_function_of_the_package_has_the_identity_of_the_release(tmp_path):
    """Also in an editable installation, where other code counts as part of the program, and edits change keys."""
    (tmp_path / "rows.json").write_text("[1, 2]")
    make = functools.partial(oc.records.json_rows, tmp_path / "rows.json")
    assert package_of("onecopy_records.row_files", row_files.__file__) == f"onecopy {oc.__version__}"
    assert list(oc.share(make, "a key", store=tmp_path / "store")) == [1, 2]
