"""`onecopy store`: what it lists, what it removes and when it asks."""

import json
import os
import time
from pathlib import Path

import pytest

import onecopy as oc
from onecopy.cli import command_line
from onecopy.cli.store import short


@pytest.fixture
def store(tmp_path: Path, monkeypatch) -> oc.Store:
    """Three artefacts in the default folder on disk, used now, an hour and 70 days ago; the first lost its source."""
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    store = oc.Store()
    for key, age in (("new", 0), ("hour\x1b[31m", 3600), ("old", 70 * 86400)):
        source = tmp_path / key
        source.write_text("x")
        made = store.get_or_build(key, lambda path: path.write_bytes(bytes(1000)), source=source)
        os.utime(made.path.with_suffix(".about"), (time.time() - age,) * 2)
    (tmp_path / "new").unlink()
    return store


def run(*arguments: str) -> int:
    return command_line.run(["store", arguments[0], "--place", "disk", *arguments[1:]])


def keys(store: oc.Store) -> list[str]:
    return [artefact.key for artefact in store.ls()]


def test_ls_reports_key_size_last_use_source_and_state_and_the_key_of_a_file_by_its_name(store, capsys, tmp_path):
    (store.folder / "notes.txt").write_text("of the user")
    assert run("ls") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["key", "size", "last", "use", "source", "place", "state"]
    assert ["gone or changed" in line for line in lines if line.startswith(("new", "old"))] == [True, False]
    assert any(line.startswith("hour\\x1b[31m") and "60 min ago" in line and "1.00 kB" in line for line in lines)
    assert any(line.startswith("old") and "10 w ago" in line for line in lines)
    assert any(line.startswith("notes.txt") and "foreign" in line for line in lines)
    assert "4 artefacts, 3.01 kB" in " ".join(lines)
    store.get_or_build(oc.file_key(tmp_path / "old", version="7"), lambda path: path.write_bytes(b"1"))
    assert run("ls") == 0
    assert "old, version 7 " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        (
            "/data/a b/slide.ndpi, 58 bytes, written 17, changed 17, inode 22 of 65024, version 1 of level 0",
            "slide.ndpi, version 1 of level 0",
        ),
        ("no inputs, by rows 391068f9f9a85b2760ddfba27f3f28b9", "no inputs, by rows 391068f9"),
        ('s3://bucket/model.safetensors, etag "1-2", 58 bytes', "s3://bucket/model.safetensors"),
    ],
)
def test_ls_shows_a_key_without_what_a_reader_cannot_use(key, shown):
    assert short(key) == shown


def test_ls_and_prune_report_in_json_on_request(store, capsys):
    assert run("ls", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [facts["key"] for facts in listed] == ["new", "hour\x1b[31m", "old"]
    assert listed[0]["path"] == str(store.path("new"))
    assert (listed[0]["bytes"], listed[0]["place"], listed[0]["source_present"]) == (1000, "disk", False)
    assert run("prune", "--json", "--yes", "--all") == 0
    told = json.loads(capsys.readouterr().out)
    assert {facts["key"] for facts in told["removed"]} == {"new", "hour\x1b[31m", "old"}
    assert told["kept"] == []


def test_looking_makes_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))
    for verb in ("ls", "prune"):
        assert run(verb) == 0
    assert not (tmp_path / "cache").exists()
    assert "0 artefacts" in capsys.readouterr().out


SELECTED = {
    "": ["new", "hour\x1b[31m", "old"],
    "--max-age": ["new", "hour\x1b[31m"],  # 60 days
    "--max-age 80d": ["new", "hour\x1b[31m", "old"],
    "--max-bytes 1kB": ["new"],
    "--key new --key old": ["hour\x1b[31m"],
    "--missing-source": ["hour\x1b[31m", "old"],
    "--all": [],
}


@pytest.mark.parametrize("options", SELECTED)
def test_prune_removes_what_the_options_select(store, capsys, options):
    left = SELECTED[options]
    assert run("prune", "--dry-run", *options.split()) == 0
    *listed, last = capsys.readouterr().out.splitlines()
    assert "would remove" in last
    assert sum(line.startswith(("new", "hour", "old")) for line in listed) == 3 - len(left)
    assert len(keys(store)) == 3
    assert run("prune", "--yes", *options.split()) == 0
    assert keys(store) == left
    assert f"removed {3 - len(left)} artefact" in capsys.readouterr().out


@pytest.mark.parametrize(("answer", "status", "left"), [("n\n", 130, 3), ("", 130, 3), ("y\n", 0, 2)])
def test_prune_asks_before_it_removes(store, onecopy_process, answer, status, left):
    done = onecopy_process("store", "prune", "--place", "disk", "--key", "new", input=answer)
    assert done.returncode == status
    assert "\nnew " in done.stdout
    assert "Remove 1 artefact, 1.00 kB?" in done.stderr
    assert len(keys(store)) == left


def test_path_reports_where_it_is_or_would_be(store, capsys):
    assert run("path", "new") == 0
    assert run("path", "never built") == 1
    assert capsys.readouterr().out.splitlines() == [str(store.path("new")), str(store.path("never built"))]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["prune", "--max-age", "soon"], "'soon' is not a duration such as 30d"),
        (["prune", "--max-bytes", "much"], "'much' is not a size"),
        (["prune", "--json", "--all"], "add --yes or --dry-run"),
        (["ls", "--folder", "/tmp"], "--folder and --place"),
    ],
)
def test_wrong_options_are_a_wrong_command_line(store, capsys, arguments, words):
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err
    assert len(keys(store)) == 3


def test_a_folder_that_will_not_do_is_one_line(tmp_path, capsys):
    tmp_path.chmod(0o755)
    assert command_line.run(["store", "ls", "--folder", str(tmp_path)]) == 1
    assert "other users have access to it" in capsys.readouterr().err
