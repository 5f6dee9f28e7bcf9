"""The check of words holds for the project, and finds each word that it refuses."""

import re
import subprocess
import sys

import pytest
from tests.support.places import ROOT
from tools import check_words

ALTERNATIVES = re.split(r"\|(?![^()]*\))", "|".join(check_words.WORDS))
REFUSED = [re.sub(r"\(\?:.*\)\?|s\?$", "", word) for word in ALTERNATIVES]


def found(tmp_path, name: str, text: str) -> list[str]:
    (tmp_path / name).write_text(text)
    return list(check_words.findings(tmp_path, [name]))


def test_the_project_has_none_of_the_words():
    command = [sys.executable, ROOT / "tools/check_words.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("word", REFUSED)
def test_a_refused_word_is_found_with_its_line_and_what_to_write(word, tmp_path):
    (line,) = found(tmp_path, "page.md", f"# One\n\nIt is a {word}, here.\n")
    assert line.startswith(f"page.md:3: {word!r}: write ")


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        (
            "a.py",
            '"""Rooms."""\nroom = 1  # a house\nraise ValueError("it is told")\ntold = f"he {room}"\n',
            [1, 2, 3, 4],
        ),
        ("plain.py", "room = whoever\n", []),
        ("a.cpp", 'int room = 1;  // a room\nthrow Error("told");\nint dear = 2;\n// dear\n', [1, 2, 4]),
        ("a.cmake", "set(room 1)\n# the room\n", [2]),
        ("a.md", "`told` and [a page](whoever.md)\n```console\n$ told\n```\n```python\nx = 1  # told\n```\n", [6]),
    ],
)
def test_text_is_checked_and_names_code_and_targets_of_links_are_not(tmp_path, name, text, lines):
    assert sorted({int(line.split(":")[1]) for line in found(tmp_path, name, text)}) == lines


def test_a_file_that_breaks_the_rule_makes_the_check_fail(tmp_path):
    (tmp_path / "README.md").write_text("Nobody is told.\n")
    command = [sys.executable, ROOT / "tools/check_words.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("README.md:1: ") == 2
