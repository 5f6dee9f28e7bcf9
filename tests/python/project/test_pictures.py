"""The documentation's pictures are what their generator makes, and it works."""

import json
import re
import sys
import xml.etree.ElementTree as ET

import pytest

pytest.importorskip("rich")
from tests.support.places import ROOT
from tools.docs_pictures import __main__ as pictures, bars, terminal

FOLDER = ROOT / "docs/pictures"
SHOWN = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ONECOPY_CACHE", str(tmp_path / "cache"))  # and the generator's own is forgotten afterwards


def is_svg(content: bytes) -> bool:
    return ET.fromstring(content).tag.endswith("svg")


def words_of(svg: bytes) -> str:
    return "".join(ET.fromstring(svg).itertext()).replace("\xa0", " ")


def test_every_picture_is_made_and_every_one_that_is_made_is_there():
    assert {path.name for path in FOLDER.iterdir()} == {*pictures.PICTURES, *pictures.KEPT}


def test_every_picture_is_shown_with_words_and_every_one_that_is_shown_is_there():
    shown = set()
    for page in (ROOT / "docs").rglob("*.md"):
        for words, link in SHOWN.findall(page.read_text()):
            assert (page.parent / link).is_file(), f"{page}: {link}"
            assert len(words) > 20, f"{page}: {link} has no text for readers that cannot see it"
            shown.add((page.parent / link).resolve())
    assert {path for path in FOLDER.iterdir() if path.resolve() not in shown} == set()


def test_pictures_are_small_fetch_nothing_and_name_nobody_s_folders():
    for path in FOLDER.iterdir():
        content = path.read_bytes()
        assert len(content) < 100_000, path
        if path.suffix == ".svg":
            assert is_svg(content)
            assert [word for word in (b"url(http", b"<script", b"/tmp/") if word in content] == []


def test_a_terminal_shows_commands_what_they_wrote_and_its_colours(tmp_path):
    program = "print('\\033[31mred\\033[0m <&>'); import sys; print(sys.stdout.isatty())"
    (tmp_path / "a.py").write_text(program)
    svg = terminal.screen_of("a", [["python", "a.py"]], tmp_path)
    assert [word for word in ("$ python a.py", "red", "<&>", "True") if word not in words_of(svg)] == []
    assert b"#f07178" in svg


def test_bars_are_read_from_the_record():
    record = json.loads(bars.WORKERS.read_text())
    shown = words_of(bars.eight_workers())
    for how in ("plain", "run"):
        memory = sorted(each[how]["bytes"] for each in record["rounds"])
        assert f"{memory[len(memory) // 2] / 1e9:.1f} GB" in shown


def test_the_picture_of_workers_in_the_readme_is_the_one_of_the_newest_record():
    assert (FOLDER / "eight-workers.svg").read_bytes() == bars.eight_workers()
    link = "https://raw.githubusercontent.com/onecopy/onecopy/main/docs/pictures/eight-workers.svg"
    assert f"[eight-workers-picture]: {link}\n" in (ROOT / "README.md").read_text()


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Give a function that makes a picture and returns it."""

    def make(name: str) -> bytes:
        monkeypatch.setattr(sys, "argv", ["pictures", "--folder", str(tmp_path), name])
        pictures.main()
        return (tmp_path / name).read_bytes()

    return make


@pytest.mark.parametrize("name", [name for name in pictures.PICTURES if name not in ("datasets.svg", "mosaic.png")])
@pytest.mark.slow
def test_a_picture_is_made(name, made):
    assert is_svg(made(name))


@pytest.mark.nightly
def test_the_recording_of_a_tutorial_is_made(made):
    pytest.importorskip("torch")
    assert "a list, and shared" in words_of(made("datasets.svg"))


@pytest.mark.slow
def test_the_tiles_of_a_tutorial_are_stitched(made, reserving):
    pytest.importorskip("tifffile")
    pytest.importorskip("imagecodecs")
    assert made("mosaic.png").startswith(b"\x89PNG")
