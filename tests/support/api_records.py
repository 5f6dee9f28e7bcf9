"""Actions on Python data: sharing, records files, imports, and datasets."""

import datetime as dt
import os
import pickle

import numpy as np
from tests.support.api_arrays import StopError, stop
from tests.support.api_table import World, action, refused
from tests.support.datasets import Pictures

import onecopy as oc
import onecopy.records


@action(40)
def share(w: World) -> None:
    with oc.share(w.rows) as table, oc.share(["a", None]), oc.share(w.pairs) as pairs:
        assert pairs["key 3"] == w.pairs["key 3"]
    refused(ValueError, table.__getitem__, 0)
    with oc.share(w.rows, store=w.store) as rows:
        rows.warm()
        rows.pin()
    named = oc.share(w.rows, "rows 1", store=w.folder / "store", source=w.json)
    with named, pickle.loads(pickle.dumps(named)) as again:
        assert again[7] == w.rows[7]
    key = f"onecopy-actions of process {os.getpid()}"  # the store in memory is the user's own
    with oc.share(w.rows, key, store=oc.Store(place="memory")) as rows:
        assert rows.report is not None
    oc.Store(place="memory").prune(keys=[key])


@action(24)
def share_in_a_child(w: World) -> None:
    with oc.share(lambda: w.rows, store=oc.Store(where="fork")) as rows:
        assert len(rows) == 50
    refused(StopError, oc.share, stop, store=w.store.with_options(where="fork"))


@action(100)
def share_refused(w: World) -> None:
    refused(oc.errors.NotShareable, oc.share, [{"a": [object()]}])
    refused(oc.errors.NotShareable, oc.share, [1, 2, dt.tzinfo()])
    refused(TypeError, oc.share, 7)
    refused(TypeError, oc.share, "text")
    refused(ValueError, oc.Store, place="elsewhere")
    refused(StopError, oc.share, stop, store=w.store.with_options(where="here"))
    refused(StopError, oc.share, list(range(20_000)), progress=stop)
    refused(StopError, oc.share, stop, "key of what fails", store=oc.Store(w.folder / "store", where="here"))


@action(100)
def save_and_load_an_object(w: World) -> None:
    path = w.out / "object.oc"
    oc.save_object(path, {"arrays": w.arrays, "rows": w.rows})
    assert oc.load_object(path, trusted=True)["arrays"]["a"][1, 1] == 31
    assert oc.load_object(path, trusted=True, private=True, report=str)["arrays"]["b"].flags.writeable
    refused(ValueError, oc.load_object, path, trusted=False)
    refused(oc.FormatError, oc.load_object, w.model, trusted=True)
    refused(oc.FormatError, oc.load_object, w.hostile, trusted=True)
    refused(AttributeError, oc.save_object, path, [lambda: None])


@action(40)
def cached_functions(w: World) -> None:
    assert oc.share_object(lambda: {"a": np.arange(500)}, "object", store=w.store)["a"][7] == 7
    refused(StopError, oc.share_object, stop, "object that fails", store=w.store)
    with oc.cached(inputs=[w.json], store=w.store)(lambda: [1, "a"])() as rows:
        assert list(rows) == [1, "a"]
    assert oc.cached(codec="object", store=w.store)(lambda n: {"a": np.arange(n)})(500)["a"][7] == 7
    refused(StopError, oc.cached(inputs=[w.json], store=w.store)(stop))
    refused(FileNotFoundError, oc.cached(inputs=[w.missing], store=w.store)(lambda: [1]))


@action()
def rows_of_a_list(w: World) -> None:
    with oc.open_records(w.list) as rows:
        assert len(list(rows)) == 10
        assert (rows[::2][-1], rows.select([1, 0, -1])[1], rows.index(1), rows.count("a")) == (2**70, "a", 2, 1)
        assert 2.5 in rows
        assert rows.concat(["b"])[-1] == "b"
        assert rows.lazy[6] is not None
        assert repr(rows)
        part = rows[1:3]
        refused(IndexError, rows.__getitem__, 99)
        refused(TypeError, rows.__getitem__, "a")
        refused(IndexError, rows.select, [99])
        refused(ValueError, rows.index, "missing")
    assert list(part) == [None, 1]
    part.close()


@action()
def rows_of_a_table(w: World) -> None:
    with oc.open_records(w.table) as table:
        assert table.column("more").column("x")[-1] == 49
        assert table.column("id").numpy().sum() == 1225
        table.take([3, -1], ["id", "box"])
        assert table.rows([1, 2])[1]["id"] == 2
        assert table.lazy[3].box.sum() == 1.5
        assert table.lazy[3].more.x == 3
        refused(KeyError, table.column, "missing")
        refused(KeyError, table.take, [0], ["missing"])
        refused(IndexError, table.take, [99])
        refused(AttributeError, getattr, table.lazy[0], "missing")


@action()
def rows_of_a_dict(w: World) -> None:
    with oc.open_records(w.dict) as pairs:
        assert pairs["key 7"] == w.pairs["key 7"]
        assert dict(pairs.items()) == w.pairs
        assert next(iter(pairs.keys())) == "key 0"
        assert pairs.get("missing") is None
        assert len(pairs.values()) == 50
        assert pairs.select(["key 2"])[0] == w.pairs["key 2"]
        assert pairs.lazy["key 1"] is not None
        assert pairs == w.pairs
        refused(KeyError, pairs.__getitem__, "missing")
        refused(KeyError, pairs.select, ["missing"])
        refused(TypeError, pairs.__getitem__, [])


@action()
def rows_of_damaged_files(w: World) -> None:
    with oc.open_records(w.damaged_rows) as rows:
        for _ in range(2):
            refused((oc.FormatError, ValueError), list, rows)
        refused((oc.FormatError, ValueError), rows.take, range(len(rows)))
    refused(oc.FormatError, oc.open_records, w.model)
    refused(oc.FormatError, oc.open_records, w.hostile)
    refused(FileNotFoundError, oc.open_records, w.missing)
    refused(FileNotFoundError, onecopy.records.rows.attach, str(w.missing), (0, 0, 0, 0), None)
    refused(oc.errors.FileChanged, onecopy.records.rows.attach, str(w.list), (0, 0, 0, 0), None)


class Known:
    """An object of a class that is registered."""

    def __init__(self, number: int) -> None:
        self.number = number


@action()
def rows_of_objects(w: World) -> None:
    onecopy.records.register(Known, lambda known: known.number, Known)
    path = w.folder / "objects.oc"
    if not path.exists():
        day = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        onecopy.records.save(path, [day, {1, 2}, 2**100, np.arange(6).reshape(2, 3), complex(1, 2), Known(3)])
    with oc.open_records(path) as rows:
        assert [rows[0].year, rows[5].number, len(list(rows))] == [2026, 3, 6]


@action(60)
def write_records(w: World) -> None:
    path = w.out / "written.oc"
    with onecopy.records.Writer(path) as writer:
        writer.append({"a": 1})
        refused(oc.errors.NotShareable, writer.append, {"a": object()})
        assert writer.extend([{"a": i} for i in range(5)]) == 5
    refused(ValueError, writer.append, 1)
    onecopy.records.save(path, w.pairs)
    refused(oc.errors.NotShareable, onecopy.records.save, path, [object()])
    refused(StopError, onecopy.records.Writer(path).extend, range(20_000), progress=stop)
    refused(OSError, onecopy.records.save, w.missing / "below", w.rows)


@action(40)
def import_json(w: World) -> None:
    path = w.out / "imported.oc"
    with onecopy.records.import_json(w.json, path, path="rows") as rows:
        assert rows[3] == w.rows[3]
    with onecopy.records.import_json(w.json, path, path="pairs", container="dict") as pairs:
        assert pairs["b"] == 2
    with onecopy.records.import_jsonl(w.jsonl, path) as rows:
        assert rows[3] == w.rows[3]
    assert next(iter(onecopy.records.jsonl_rows(w.jsonl)))["id"] == 0
    source = onecopy.records.json_rows(w.json, "rows", progress=stop)
    refused(StopError, list, source)
    refused(oc.FormatError, onecopy.records.import_json, w.hostile, path)
    refused(oc.FormatError, onecopy.records.import_json, w.json, path, path="missing")
    refused(oc.FormatError, onecopy.records.import_jsonl, w.csv, path)
    refused(FileNotFoundError, onecopy.records.import_json, w.missing, path)


@action(40, needs=("pyarrow",))
def arrow(w: World) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with oc.open_records(w.table) as table:
        made = table.to_arrow()
        assert made.num_rows == 50
        with oc.share(onecopy.records.arrow_rows(made)) as again:
            assert again[3]["id"] == 3
    assert made["id"][3].as_py() == 3
    source, path = w.folder / "rows.parquet", w.out / "imported_parquet.oc"
    if not source.exists():
        pq.write_table(pa.table({"a": [1, 2], "b": ["x", None]}), source)
    with onecopy.records.import_parquet(source, path) as rows:
        assert rows[0] == {"a": 1, "b": "x"}
    assert len(list(onecopy.records.parquet_rows(source))) == 2
    refused((oc.FormatError, ValueError, OSError), onecopy.records.import_parquet, w.hostile, path)


@action(24)
def share_dataset(w: World) -> None:
    pictures = oc.torch.share_dataset(Pictures(500), "1 kB")
    assert pictures[-1][1] == 499
    refused(TypeError, oc.torch.share_dataset, 7)
