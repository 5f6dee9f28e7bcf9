"""What is imported from JSON is what json.loads gives, types, order and bits included; else it is refused."""

from __future__ import annotations

import errno
import itertools
import json
import random
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.refusals import refusal
from tests.support.rows import INTEGERS, same
from tests.support.turns import turns_of_another_thread

import onecopy as oc
import onecopy.arrays
from onecopy import records

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def imported(tmp_path):
    """Import text as rows of a nameless List."""

    def run(text: str | bytes, path: Any = (), lines: bool = False) -> list[Any]:
        file = tmp_path / "rows.json"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return list(records.jsonl_rows(file) if lines else records.json_rows(file, path))

    return run


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(INTEGERS) | st.floats() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.sampled_from(["a", "b", "é", "", 'x"y', "\\", "\n"]) | TEXTS, inner, max_size=5)
    ),
    max_leaves=40,
)
DUMPS = st.fixed_dictionaries(
    {
        "ensure_ascii": st.booleans(),
        "indent": st.sampled_from([None, 0, 3, "\t"]),
        "separators": st.sampled_from([(",", ":"), (" ,\r\n ", "\t: ")]),
        "sort_keys": st.booleans(),
    }
)


@given(st.lists(VALUES, max_size=8), DUMPS)
@pytest.mark.slow
def test_any_values_written_in_any_way(imported, rows, dumps):
    text = json.dumps(rows, **dumps)
    assert same(imported(text), json.loads(text))
    text = json.dumps({"x": [rows], "data": {"rows": rows, "more": rows}}, **dumps)
    assert same(imported(text, "data.rows"), json.loads(text)["data"]["rows"])


@given(st.lists(VALUES, max_size=8), st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\n"]), st.booleans(), st.booleans())
def test_any_values_as_lines(imported, rows, end, last, ascii_only):
    lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
    assert same(imported(end.join(lines) + end * last, lines=True), [json.loads(line) for line in lines])


def test_numbers_however_they_are_spelt(imported):
    draw = random.Random(1)

    def digits(most: int) -> str:
        return "".join(draw.choices("0123456789", k=draw.randint(1, most)))

    def number() -> str:
        whole = digits(26).lstrip("0") or "0"
        fraction = draw.choice(["", f".{digits(25)}"])
        exponent = draw.choice(["", draw.choice("eE") + draw.choice(["", "+", "-"]) + digits(3)])
        return draw.choice(["", "-"]) + whole + fraction + exponent

    edges = ["1e308", "1e309", "-1e309", "1e-323", "1e-324", "-1e-400", "-0.0e+7", "9007199254740993.0"]
    edges += ["0e999999999999999999999", "1e99999999999999999999", "1e-99999999999999999999", "0.0e-9"]
    edges += [f"0.{'0' * 400}1e500", f"0.{'0' * 400}1", f"{'9' * 400}.5", f"{'9' * 400}.5e-395"]
    text = "[" + ", ".join([*edges, *(number() for _ in range(10_000))]) + "]"
    assert same(imported(text), json.loads(text))


JSON_LIKE = st.text(st.sampled_from('[]{}:,"\\ \n0123456789.eE+-truefalsnNaIity/bu\x00\x1fé'), max_size=12)


@given(JSON_LIKE.map(lambda text: f"[{text}]") | JSON_LIKE)
@settings(max_examples=500)
def test_what_resembles_json_is_accepted_or_refused_as_by_json_loads(imported, text):
    try:
        wanted = json.loads(text)
        json.dumps(wanted, ensure_ascii=False).encode()  # lone surrogates: refused here alone
    except (ValueError, RecursionError):
        wanted = None
    if isinstance(wanted, list):
        assert same(imported(text), wanted)
    else:
        with pytest.raises(oc.FormatError, match="JSON"):
            imported(text)


SMALL = '{"no": [1e2], "rows": [{"k\\u00e9": "\\ud83d\\ude00 é", "n": [-0.5, 12345678901234567890]}, null, true]}'


def test_every_truncation_and_every_flipped_byte_is_refused_or_json(imported):
    text = SMALL.encode()
    assert same(imported(text, "rows"), json.loads(text)["rows"])
    for size in range(1, len(text)):
        with pytest.raises(oc.FormatError):
            imported(text[:size], "rows")
    for at in range(len(text)):
        for flip in (0x01, 0x02, 0x20, 0x80, 0xFF):
            damaged = text[:at] + bytes([text[at] ^ flip]) + text[at + 1 :]
            try:
                wanted = json.loads(damaged.decode())["rows"]
                json.dumps(wanted, ensure_ascii=False).encode()
            except (ValueError, KeyError):
                wanted = None
            if isinstance(wanted, list):
                assert same(imported(damaged, "rows"), wanted), damaged
            else:
                with pytest.raises(oc.FormatError):
                    imported(damaged, "rows")


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1, "b": [2], "a": {"c": 3, "c": 4}, "b": 5}, {"\\u0061": 1, "a": 2}]',
        r'[{"\u0061": 1, "\u0062": 2}, {"\u0063": 3, "\u0063": 4}]',
    ],
)
def test_keys_that_come_twice_have_their_first_place_and_last_value(imported, text):
    assert same(imported(text), json.loads(text))


def test_the_members_of_an_object_are_a_dict(tmp_path):
    data = {"a": [{"x": 1}], "é": None, "": {"y": 2.5}}
    path = tmp_path / "dict.json"
    path.write_text(json.dumps({"all": data}))
    rows = records.json_rows(path, ["all"], container="dict")
    with records.Writer(tmp_path / "dict.oc", container=rows.container) as writer:
        assert writer.extend(rows) == 3
    pairs = onecopy.arrays.open_arrays(tmp_path / "dict.oc")
    assert "records.0.0.data" in pairs.keys()  # noqa: SIM118


def test_sixty_levels_are_taken_and_one_more_is_refused(imported):
    rows = json.loads("[" * 61 + "]" * 61)
    assert same(imported(json.dumps(rows)), rows)
    with pytest.raises(oc.FormatError, match="nested more than 60 deep"):
        imported("[" * 62 + "]" * 62)
    with pytest.raises(oc.FormatError, match="nested more than 60 deep"):
        imported('{"a": ' * 10**6, "b")


def test_integers_of_any_size_up_to_where_json_loads_refuses(imported):
    largest = "9" * sys.get_int_max_str_digits()
    rows = imported(f"[{largest}, -{largest}]")
    assert rows == [int(largest), -int(largest)]
    with pytest.raises(oc.FormatError, match="the integer has 4301 digits"):
        imported(f"[{largest}0]")


@pytest.mark.parametrize(
    ("text", "path", "refused"),
    [
        ('["\\ud800"]', "", "malformed at 2"),
        ("\ufeff[]", "", "unsupported at 0"),
        ('{"annotations": []}', "annotation", "not_this_format at 19"),
        ('{"a": [], "a": []}', "a", "inconsistent at 14"),
        ("[1]", "a", "not_this_format at 0"),
        ("7", "", "not_this_format at 0"),
        (b"  ", "", "not_this_format at 2"),
        (b'["\xff"]', "", "malformed at 2"),
    ],
)
def test_what_is_refused_has_a_kind_and_a_place(imported, tmp_path, text, path, refused):
    with pytest.raises(oc.FormatError) as error:
        imported(text, [part for part in path.split(".") if part])
    assert (refusal(error.value), error.value.path) == (refused, str(tmp_path / "rows.json"))


ITEMS = '{"no": {"items": [0]}, "data": {"\\u0078": [], "items": [1, 2], "more": "]"}, "z": [[]]}'
MESSAGES = {
    "0 (line 1, column 1): expected an array, whose items are the rows": ["7"],
    "byte order mark": ["\ufeff[]"],
    "UTF-16": [b"\xff\xfe[\0]\0"],
    "2 (line 1, column 3, in [1]): expected ',' or ']'": ["[1"],
    "expected ',' or ']'": ["[1 2]", "[1}", "[0x10]", "[1_000]"],
    "expected a value, found the end of the text": ["[1,"],
    "3 (line 1, column 4, in [1]): expected a value": ["[1,]"],
    "12 (line 3, column 7, in [2]): expected a value": ['[\n1,\n "é", x]'],
    '20 (line 3, column 7, in [0]["é"][2])': ['[\n{"é": [1,\n "é", x]}]'],
    'in [0]["a b"].c[1]): expected a value': ['[{"a b": {"c": [0, tru]}}]'],
    "expected a value": [
        f"[{one}]" for one in (",", "value", "nul", "True", "nan", "'a'", "-", "+1", ".5", "-Inf", "\xa0")
    ],
    "3 (line 1, column 4): unexpected text after the value": ["[1]x"],
    "leading zero": ["[01]", "[-01]"],
    "the fraction has no digits": ["[1.]", "[1.e5]"],
    "the exponent has no digits": ["[1e]", "[1e+]"],
    "1 (line 1, column 2, in [0]): the string is not terminated": ['["a]'],
    "the string contains a control character": ['["a\n"]'],
    "an unknown escape sequence": ['["\\x"]', '["\\'],
    "\\u needs four hexadecimal digits": ['["\\u12"]', '["\\u-123"]'],
    "10 (line 1, column 11, in [0]): an unpaired surrogate": ['["abcdefgh\\ud800"]'],
    "an unpaired surrogate": ['["\\udc00"]', '["\\ud800\\u0041"]', '["\\ud800x"]'],
    "in [0]): expected a key in quotes": ["[{1: 2}]", '[{"a": 1,}]'],
    "expected ':' after the key": ['[{"a" 1}]'],
    "expected ',' or '}'": ['[{"a": 1 "b": 2}]'],
    "5 (line 1, column 6, in [0]): invalid UTF-8": [b'["abc\xff"]'],
    "4 (line 1": [b'["\xc3\xa9\xc0\x80"]', b'["\\n\xed\xa0\x80"]'],
    "invalid UTF-8": [b'["12345678901234567\xf0\x9f"]'],
}
MESSAGES_AT = [
    ({"path": ["a", "b"]}, '{"a": {"b": [0, {"c d": [1, tru]}]}}', '28 (line 1, column 29, in a.b[1]["c d"][1])'),
    (
        {},
        '{"annotations": [], "images": []}',
        "0 (line 1, column 1): expected an array of rows, found an object: give the path to one of its members, "
        "'annotations', 'images'",
    ),
    ({"path": ["data", "rows"]}, ITEMS, "the object has no member 'rows'; it has 'x', 'items', 'more'"),
    ({"path": ["data"]}, ITEMS, "give the path to one of its members, 'x', 'items', 'more'"),
    ({"path": ["no", "items", "x"]}, ITEMS, "17 (line 1, column 18, in no.items)"),
    ({"path": ["a"]}, '{"a": [1], "a": [2]}', "the member with the rows occurs twice"),
    ({"path": ["a"]}, '{"a": [1], "b": tru}', "in b): expected a value"),
    ({"lines": True}, "1\n2 3\n", "4 (line 2, column 3, in [1]): unexpected text after the value"),
    ({"lines": True}, "[1,\n2]\n", "3 (line 1, column 4, in [0][1])"),
    *(({}, text, message) for message, texts in MESSAGES.items() for text in texts),
]


@pytest.mark.parametrize(("options", "text", "message"), MESSAGES_AT)
def test_a_refusal_names_line_column_and_value(imported, tmp_path, options, text, message):
    with pytest.raises(oc.FormatError) as error:
        imported(text, **options)
    assert str(error.value).startswith(f"{tmp_path / 'rows.json'}: JSON at byte ")
    assert message in str(error.value)


def test_an_empty_file_of_lines_has_no_rows_and_one_of_json_is_none(imported):
    assert imported(b"", lines=True) == []
    with pytest.raises(oc.FormatError, match="empty"):
        imported(b"")


def test_a_source_is_shared_by_key_and_not_opened_again(tmp_path):
    source = tmp_path / "rows.json"
    source.write_text('[{"id": 1}, {"id": 2}]')
    told: list[tuple[int, int]] = []
    rows = records.json_rows(source, progress=lambda *done: told.append(done))
    key = oc.file_key(source)
    assert list(oc.share(rows, key, store=tmp_path / "store")) == [{"id": 1}, {"id": 2}]
    assert told[-1] == (22, 22)
    source.unlink()
    again = oc.share(records.json_rows(source), key, store=tmp_path / "store")
    assert again == [{"id": 1}, {"id": 2}]
    with pytest.raises(FileNotFoundError):
        oc.share(records.json_rows(source))


def test_a_writer_takes_sources_between_rows_and_none_after_one_that_failed(tmp_path):
    (tmp_path / "a.jsonl").write_text("1\n2\n")
    (tmp_path / "bad.jsonl").write_text("3\n{\n")
    with records.Writer(tmp_path / "rows.oc") as writer:
        writer.append(0)
        assert writer.extend(records.jsonl_rows(tmp_path / "a.jsonl")) == 2
        writer.append({"x": 3})
    assert list(oc.open_records(tmp_path / "rows.oc")) == [0, 1, 2, {"x": 3}]
    writer = records.Writer(tmp_path / "no.oc")
    with pytest.raises(oc.FormatError):
        writer.extend(records.jsonl_rows(tmp_path / "bad.jsonl"))
    with pytest.raises(ValueError, match="an earlier row failed"):
        writer.append(4)
    assert not (tmp_path / "no.oc").exists()


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Path:
    """Some 100 MB of annotations."""
    path = tmp_path_factory.mktemp("large") / "instances.json"
    draw = random.Random(0)
    lines = []
    for i in range(1000):
        polygon = [round(draw.uniform(0, 640), 2) for _ in range(2 * max(4, int(draw.lognormvariate(3.06, 0.62))))]
        lines.append(json.dumps({"segmentation": [polygon], "bbox": polygon[:4], "iscrowd": 0, "name": f"näme {i}"}))
    block = ",\n".join(lines).encode()
    with path.open("wb") as file:
        file.write(b'{"images": [' + block + b'], "annotations": [')
        for i in range(100_000_000 // len(block)):
            file.write((b",\n" if i else b"") + block)
        file.write(b"]}")
    yield path
    path.unlink()


PEAK = """
    import sys, threading, onecopy.records as records

    def anonymous():
        with open("/proc/self/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Anonymous")) << 10

    records.import_json(sys.argv[2], sys.argv[3], path="images").close()  # what is loaded once
    peak, done = 0, threading.Event()
    def look():
        global peak
        while not done.wait(0.01):
            peak = max(peak, anonymous())
    thread = threading.Thread(target=look)
    thread.start()
    start = anonymous()
    rows = records.import_json(sys.argv[1], sys.argv[3], path="annotations")
    done.set()
    thread.join()
    print(len(rows), peak - start)
"""


@pytest.mark.unsanitized  # AddressSanitizer's memory is counted too
def test_a_large_file_needs_little_memory(large, tmp_path, python):
    small = tmp_path / "small.json"
    small.write_text('{"images": [1]}')
    rows, grown = map(int, python(PEAK, large, small, tmp_path / "rows.oc").split())
    assert rows > 100_000
    assert grown < 64 << 20


def test_an_import_stops_at_a_signal_and_at_an_exception_of_progress(large, tmp_path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGUSR1])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            all(records.import_json(large, tmp_path / "rows.oc", path="annotations") for _ in itertools.count())
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert [path.name for path in tmp_path.iterdir()] in ([], ["rows.oc"])  # it may be quick

    class EnoughError(Exception):
        pass

    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        raise EnoughError

    with pytest.raises(EnoughError):
        records.import_json(large, tmp_path / "no.oc", path="annotations", progress=stop)
    assert len(seen) == 1
    assert 0 < seen[0][0] <= seen[0][1] == large.stat().st_size
    assert not (tmp_path / "no.oc").exists()


@pytest.mark.unsanitized  # 16 s there
def test_other_threads_run_meanwhile(large, tmp_path):
    def run() -> None:
        records.import_json(large, tmp_path / "rows.oc", path="annotations").close()

    assert turns_of_another_thread(run) > 20


def test_a_full_disk_is_reported_and_nothing_is_left(large, tmp_path, in_child):
    def fill() -> str:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))
        try:
            records.import_json(large, tmp_path / "rows.oc", path="annotations")
        except OSError as error:
            return f"{errno.errorcode[error.errno or 0]} {error.filename}"
        return "no error"

    assert in_child(fill) == f"EFBIG {tmp_path}"
    assert not list(tmp_path.iterdir())


def test_invalid_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="container must be 'list' or 'dict', not 'table'"):
        records.json_rows(tmp_path / "a.json", container="table")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        list(records.json_rows(tmp_path / "a.json"))
    with pytest.raises(IsADirectoryError):
        records.import_json(tmp_path, tmp_path / "rows.oc")


def test_a_duplicate_key_of_a_dict_is_an_error_with_file_and_key(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": 1, "b": 2, "a": 3}')
    for use in (oc.share, lambda rows: records.save(tmp_path / "a.oc", rows), list):
        with pytest.raises(oc.FormatError, match=r"a\.json: pairs 0 and 2 have the same key, 'a'") as raised:
            use(records.json_rows(path, container="dict"))
        assert raised.value.path == str(path)
