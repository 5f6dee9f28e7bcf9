"""Tables go to Arrow's consumers without a copy, and Arrow's tables become rows."""

import datetime as dt
import decimal
import gc
import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st

import onecopy as oc
import onecopy.records
from onecopy.records import Writer, arrow_rows

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

LEAVES = st.sampled_from(
    [
        st.none(),
        st.booleans(),
        st.integers(-100, 100),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False),
        st.text(max_size=4),
        st.binary(max_size=4),
    ]
)
KEY = st.text("abc", min_size=1, max_size=2)


def nested(values):
    return st.one_of(
        values.map(lambda value: st.none() | value),
        values.map(lambda value: st.lists(value, max_size=3)),
        st.dictionaries(KEY, values, min_size=1, max_size=3).map(st.fixed_dictionaries),
    )


COLUMN = st.recursive(LEAVES, nested, max_leaves=6)
TABLES = st.dictionaries(KEY, COLUMN, min_size=1, max_size=3).flatmap(
    lambda columns: st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=20)
)


@given(TABLES, st.slices(20))
def test_arrow_reads_the_rows(rows, part):
    table = oc.share(rows)
    arrow = pa.table(table)
    arrow.validate(full=True)
    assert arrow.to_pylist() == rows
    some = pa.table(table[part])
    some.validate(full=True)
    assert some.to_pylist() == rows[part]


@given(TABLES, st.data())
def test_arrow_reads_a_selection(rows, data):
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=30))
    arrow = pa.table(oc.share(rows).select(indices))
    arrow.validate(full=True)
    assert arrow.to_pylist() == [rows[i] for i in indices]


@given(TABLES)
def test_what_came_from_arrow_is_what_went_out(rows):
    assert oc.share(arrow_rows(oc.share(rows))) == rows
    assert oc.share(arrow_rows(pa.table(oc.share(rows)).slice(1))) == rows[1:]


KINDS = [
    {
        "tuple": (i, "x" * i),
        "long": tuple(range(9 + i)),
        "map": {i: "m", 9: None},
        "keys": {None: i},
        "choice": [i, "c", None, (1,)][i],
        "day": dt.date(2026, 1, 1 + i),
        "maybe": [None, decimal.Decimal(i)][i % 2],
        "set": [None, frozenset([i])][i % 2],
        "array": np.arange(i, dtype="u2"),
        "matrix": np.ones((i, 2), "f4"),
        "names": np.array(["a" * (i + 1)]),
        "scalar": np.float32(i),
        "some": [None, np.ones((1, 1))][i % 2],
        "big": 2**70 + i,
    }
    for i in range(4)
]


@pytest.mark.parametrize("part", [slice(None), slice(1, 3), slice(None, None, -1)], ids=["all", "slice", "copy"])
def test_every_kind_has_a_type_of_arrows(part):
    arrow = pa.table(oc.share(KINDS)[part])
    arrow.validate(full=True)
    first = arrow.to_pylist()[0]
    i = range(4)[part][0]
    assert first["tuple"] == {"0": i, "1": "x" * i}
    assert first["long"] == list(range(9 + i))
    assert first["map"] == [(i, "m"), (9, None)]
    assert first["keys"] == [{"key": None, "value": i}]
    assert first["choice"] == [i, "c", None, {"0": 1}][i]
    assert first["day"] == dt.date(2026, 1, 1 + i).toordinal()
    assert first["maybe"] == [None, str(i)][i % 2]
    assert first["array"] == list(range(i))
    assert first["matrix"] == {"values": [1] * 2 * i, "shape": [i, 2]}
    assert first["names"] == [("a" * (i + 1)).encode("utf-32-le")]
    assert first["scalar"] == [i]
    assert first["some"] == [None, {"values": [1], "shape": [1, 1]}][i % 2]
    assert int.from_bytes(first["big"], "little") == 2**70 + i
    assert arrow.schema.field("day").metadata == {b"ARROW:extension:name": b"onecopy.date"}
    assert arrow.schema.field("array").type == pa.list_(pa.field("item", pa.uint16(), nullable=False))


VALUE = LEAVES.flatmap(lambda strategy: strategy)


def plain(value):
    """Undo what unions_as_structs does."""
    if isinstance(value, dict):
        found = [plain(one) for one in value.values() if one is not None]
        return found[0] if found else None
    return [plain(one) for one in value] if isinstance(value, list) else value


@given(
    st.lists(st.recursive(VALUE, lambda value: st.lists(value, max_size=3), max_leaves=6), min_size=1, max_size=12),
    st.slices(12),
)
def test_unions_become_structs(values, part):
    arrow = oc.share([{"mixed": value} for value in values])[part].to_arrow(unions="struct")
    arrow.validate(full=True)
    assert "union" not in str(arrow.schema)
    assert [plain(row["mixed"]) for row in arrow.to_pylist()] == values[part]


@given(st.lists(VALUE, min_size=1, max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_unions_of_a_slice_of_arrows_become_structs(values, start, length):
    from onecopy_records._arrow_unions import unions_as_structs

    whole = oc.share([{"mixed": [value]} for value in values]).to_arrow()
    arrow = unions_as_structs(whole.slice(start, length))
    arrow.validate(full=True)
    assert [[plain(one) for one in row["mixed"]] for row in arrow.to_pylist()] == [
        [value] for value in values[start : start + length]
    ]


@given(st.lists(VALUE, min_size=1, max_size=12), st.slices(12))
def test_unions_inside_structs_and_maps_become_structs(values, part):
    arrow = oc.share([{"outer": {"inner": value}, "map": {1: value}} for value in values])[part].to_arrow(
        unions="struct"
    )
    arrow.validate(full=True)
    assert "union" not in str(arrow.schema)
    found = [
        (plain(row["outer"]["inner"]), [(key, plain(one)) for key, one in row["map"]]) for row in arrow.to_pylist()
    ]
    assert found == [(value, [(1, value)]) for value in values[part]]


def test_fields_of_a_union_are_named_by_their_types():
    values = [True, 300, 2**40, "a", b"b", [1], {"x": 1}, {1: 2}, None]
    kind = oc.share([{"mixed": value} for value in values]).to_arrow(unions="struct").schema.field("mixed").type
    assert [kind.field(number).name for number in range(kind.num_fields)] == [
        "bool",
        "int",
        "string",
        "binary",
        "list",
        "struct",
        "map",
    ]
    with pytest.raises(ValueError, match="unions must be 'dense' or 'struct', not 'sparse'"):
        oc.share([{"a": 1}]).to_arrow(unions="sparse")


def test_datasets_reads_annotations_with_polygons_and_run_lengths():
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    rows = [
        {"id": 1, "segmentation": [[0.5, 1.0, 2.0]]},
        {"id": 2, "segmentation": {"counts": [3, 4], "size": [2, 2]}},
    ]
    dataset = datasets.Dataset(oc.share(rows).to_arrow(unions="struct"))
    assert dataset[0]["segmentation"] == {"list": [[0.5, 1.0, 2.0]], "struct": None}
    assert dataset[1]["segmentation"] == {"list": None, "struct": {"counts": [3, 4], "size": [2, 2]}}


def test_columns_are_arrays():
    table = oc.share([{"n": i, "at": {"x": [i]}} for i in range(10)])
    assert pa.array(table.column("n")[2:5]).to_pylist() == [2, 3, 4]
    assert pa.array(table.column("at").column("x")[::3]).to_pylist() == [[0], [3], [6], [9]]
    assert pa.array(oc.share(["a", None])).to_pylist() == ["a", None]
    assert pa.field(table.column("n")).type == pa.int8()


def test_the_memory_is_that_of_the_file_and_lives_as_long_as_the_arrays():
    table = oc.share([{"n": i} for i in range(1000)])
    view = table.column("n").numpy()
    arrow = table.to_arrow()
    assert arrow["n"].chunk(0).buffers()[1].address == view.ctypes.data
    table.close()
    del table, view
    gc.collect()
    assert arrow["n"].to_pylist() == list(range(1000))


def test_capsules_that_nobody_reads_give_everything_back():
    table = oc.share([{"n": i, "b": [i]} for i in range(10)])
    before = table._origin.source.views
    for _ in range(3):
        table.__arrow_c_stream__()
        table.__arrow_c_array__()
        table.__arrow_c_schema__()
    kept = pa.table(table)
    assert table._origin.source.views > before
    thread = threading.Thread(target=kept.__class__.validate, args=(kept,))
    thread.start()
    thread.join()
    del kept
    gc.collect()
    assert table._origin.source.views == before


def test_a_stream_is_read_once():
    table = oc.share([{"n": 1}])
    stream = table.__arrow_c_stream__()

    class Once:
        def __arrow_c_stream__(self, requested_schema=None):
            return stream

    assert pa.table(Once()).num_rows == 1
    with pytest.raises(ValueError, match="already been read"):
        oc.share(arrow_rows(Once()))


@pytest.mark.parametrize(
    ("array", "name"),
    [
        (pa.array([decimal.Decimal(1)]), "c"),
        (pa.array([dt.time(1)]), "c"),
        (pa.array([{"x": [dt.timedelta(1)]}]), "c.x"),
    ],
)
def test_arrow_types_that_records_do_not_have_are_refused_by_their_column(array, name, tmp_path):
    writer = Writer(tmp_path / "rows.oc")
    with pytest.raises(oc.FormatError, match=f"the column '{name}' has the Arrow type"):
        writer.extend(arrow_rows(pa.table({"a": [1], "c": array})))
    with pytest.raises(ValueError, match="create a new builder"):
        writer.append({"a": 1})


def test_a_sparse_union_becomes_its_values(tmp_path):
    ids, columns = pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, None]), pa.array(["a", "b", "c"])]
    onecopy.records.save(tmp_path / "rows.oc", arrow_rows(pa.table({"x": pa.UnionArray.from_sparse(ids, columns)})))
    assert list(oc.open_records(tmp_path / "rows.oc")) == [{"x": 1}, {"x": "b"}, {"x": None}]


def test_what_is_no_table_is_refused():
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        arrow_rows([1, 2])
    with pytest.raises(oc.FormatError, match="expected an Arrow table"):
        oc.share(arrow_rows(pa.chunked_array([[1, 2]])))
    twice = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(oc.FormatError, match="'a' occurs twice"):
        oc.share(arrow_rows(twice))
    with pytest.raises(TypeError, match="cannot iterate over Arrow rows"):
        list(arrow_rows(pa.table({"a": [1]})))


def test_an_error_of_the_stream_is_ours():
    def batches():
        yield pa.record_batch({"a": [1]})
        raise OSError("the disk fell out")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"a": pa.int64()}), batches())
    with pytest.raises(oc.FormatError, match="the disk fell out"):
        oc.share(arrow_rows(reader))


def test_progress_of_an_import_may_stop_it(tmp_path):
    table = pa.concat_tables([pa.table({"a": [1, 2]})] * 3)
    seen = []
    with Writer(tmp_path / "rows.oc") as writer:
        assert writer.extend(arrow_rows(table), progress=seen.append) == 6
    assert seen == [2, 4, 6]

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Writer(tmp_path / "other.oc").extend(arrow_rows(table), progress=stop)


def test_a_damaged_file_is_not_handed_over(tmp_path):
    path = tmp_path / "rows.oc"
    onecopy.records.save(path, [{"t": "abc"}, {"t": "de"}])
    entry = oc.open_records(path).file.entry("records.0.t.offsets")
    with path.open("r+b") as file:
        file.seek(entry.offset + 4)
        file.write((99).to_bytes(4, "little"))
    damaged = oc.open_records(path)
    for export in (damaged.__arrow_c_array__, damaged.__arrow_c_stream__, damaged[::-1].__arrow_c_stream__):
        with pytest.raises(oc.FormatError, match=r"records\.0\.t"):
            export()
    assert damaged.__arrow_c_schema__()


def test_polars_reads_a_table():
    polars = pytest.importorskip("polars", reason="polars is not installed")
    rows = [{"id": i, "name": f"n{i}", "box": [i / 2] * (i % 4)} for i in range(100)]
    assert polars.DataFrame(oc.share(rows)[10:20]).to_dicts() == rows[10:20]
    assert oc.share(arrow_rows(polars.DataFrame(rows))) == rows


def test_duckdb_reads_a_table():
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    rows = oc.share([{"id": i, "name": f"n{i % 3}"} for i in range(100)])
    counts = duckdb.sql("select name, count(*) from rows group by name order by name").fetchall()
    assert counts == [("n0", 34), ("n1", 33), ("n2", 33)]
    assert rows.columns == ("id", "name")
