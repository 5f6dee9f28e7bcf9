"""`onecopy import`, and `onecopy ls` of what it makes, in processes of their own."""

import json

import pytest

import onecopy as oc
import onecopy.records

pytestmark = pytest.mark.processes

ROWS = [{"id": 7, "box": [1.5, 2.5], "x.y": {"a": None}}, {"id": 300, "box": [], "x.y": {"a": "text"}}]


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"info": 1, "data": {"rows": ROWS}}))
    return path


def test_import_writes_the_rows_and_reports_them(onecopy_process, source, tmp_path):
    done = onecopy_process("import", source, tmp_path / "rows.oc", "--path", "data.rows")
    assert (done.returncode, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())  # a line of 80 columns is folded
    assert f"{tmp_path / 'rows.oc'}: table of 2 rows, " in said
    assert said.endswith(f"from {source.stat().st_size} B of json")
    assert list(oc.open_records(tmp_path / "rows.oc")) == ROWS


def test_import_of_other_formats_by_name_or_by_word(onecopy_command, tmp_path):
    (tmp_path / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (tmp_path / "rows.txt").write_text('{"k": [1], "l": [2]}')
    target = tmp_path / "rows.oc"
    assert onecopy_command("import", tmp_path / "rows.ndjson", target).returncode == 0
    assert list(oc.open_records(target)) == ROWS
    assert onecopy_command("import", tmp_path / "rows.txt", target, "--format", "json", "--dict").returncode == 0
    assert dict(oc.open_records(target)) == {"k": [1], "l": [2]}


@pytest.mark.parametrize(
    ("name", "options", "status", "message"),
    [
        ("rows.json", ["--path", "data.row"], 1, "the object has no member 'row'; it has 'rows'"),
        ("rows.json", [], 1, "give --path with one of its members, 'info', 'data'"),
        ("rows.json", ["--format", "parquet", "--path", "a"], 2, "--path applies to json, but SOURCE is parquet"),
        ("rows.json", ["--format", "jsonl", "--dict"], 2, "--dict applies to json, but SOURCE is jsonl"),
        ("rows.bin", [], 2, "unknown suffix '.bin': specify the format with --format (see 'onecopy import --help')\n"),
    ],
)
def test_import_refuses_in_one_line(onecopy_command, source, tmp_path, name, options, status, message):
    done = onecopy_command("import", source.with_name(name), tmp_path / "rows.oc", *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "rows.oc").exists()


def test_ls_shows_rows_as_a_tree(onecopy_command, tmp_path):
    path = tmp_path / "rows.oc"
    onecopy.records.save(path, ROWS)
    done = onecopy_command("ls", path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines.pop(0) == f"{path}: safetensors, onecopy records"
    assert lines[0].split() == ["rows", "type", "size", "resident"]
    assert [line.split()[:2] for line in lines[1:5]] == [
        ["id", "int16"],
        ["box", "list[float]"],
        ["x.y", "dict"],
        ["a", "text"],
    ]
    assert lines[4].startswith("  a  ")
    facts = json.loads(onecopy_command("ls", path, "--json").stdout)
    assert (facts["kind"], facts["container"], facts["rows"]) == ("records", "list", 2)
    places = {place["name"]: place for place in facts["places"]}
    assert places["list"]["nbytes"] == oc.open_records(path).nbytes
    assert places["id"]["nbytes"] == 4
    assert places["x.y"]["nbytes"] == places["a"]["nbytes"] > 4
    assert f"list of 2 rows, {places['list']['nbytes']} B, " in lines[5]


def test_ls_of_a_user_who_may_only_read_the_file_shows_what_is_resident_as_unknown(
    onecopy_command, tmp_path, monkeypatch, nobody, in_child
):
    monkeypatch.chdir(tmp_path)  # another user may not search the folders above
    onecopy.records.save("rows.oc", ROWS)
    for options in ([], ["--json"], ["--arrays"], ["--arrays", "--json"]):
        done = in_child(onecopy_command, "ls", "rows.oc", *options, uid=nobody)
        assert (done.returncode, done.stderr) == (0, "")
        assert ('"cached": null' if "--json" in options else ", ? resident\n") in done.stdout


def test_ls_shows_a_dict_rows_that_are_no_dicts_and_the_arrays_of_records_on_request(onecopy_command, tmp_path):
    path = tmp_path / "rows.oc"
    onecopy.records.save(path, {"a": [1], "b": [2]})
    words = [line.split()[:2] for line in onecopy_command("ls", path).stdout.splitlines()]
    assert words[2:4] == [["key", "text"], ["value", "list[int8]"]]
    onecopy.records.save(path, ["a", None])
    assert onecopy_command("ls", path).stdout.splitlines()[2].split()[:4] == ["row", "text", "|", "None"]
    onecopy.records.save(path, ROWS)
    shown = onecopy_command("ls", path, "--arrays", "--names", "records.0.id.*").stdout
    assert shown.splitlines()[2].split()[:3] == ["records.0.id.data", "I16", "2"]
    done = onecopy_command("ls", path, "--sort", "size")
    assert done.returncode == 2
    assert "--sort and --names apply to arrays only: add --arrays" in done.stderr


def test_ls_of_hostile_fields_repaints_nothing(onecopy_command, tmp_path):
    path = tmp_path / "rows.oc"
    onecopy.records.save(path, [{"\x1b[2J": 1, "\u202eback": {"a\nb": 2}}])
    done = onecopy_command("ls", path)
    assert done.returncode == 0
    assert not set(done.stdout) & {"\x1b", "\u202e"}
    assert r"a\nb" in done.stdout
