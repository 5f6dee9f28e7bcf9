"""The check of words holds for the project, and finds each word that it refuses."""

import re
import subprocess
import sys

import pytest
from tests.support.places import ROOT
from tools import check_words

PLANTED = {
    "The caller gets what he asked for.": "he",
    "A lock belongs to him.": "him",
    "Its owner, whoever that is.": "whoever",
    "A file of somebody else": "somebody",
    "A page that nobody maps": "nobody",
    "It is mapped by everybody.": "everybody",
    "The caller is told.": "told",
    "The report tells which.": "tells",
    "It looks at memory.": "looks at",
    "A page that is looked at": "is looked at",
    "Memory of no file": "of no file",
    "A list of numbers of processes": "numbers of processes",
    "A cache of the processor": "processor",
    "The plan of the house": "house",
    "A header of this room": "room",
    "A walk is dear.": "dear",
    "A lonely process": "lonely",
    "Built once per host": "once per host",
    "The last handle lets go.": "lets go",
    "Packed weights cannot be had.": "cannot be had",
    "Serialized lists and their kin": "kin",
    "It ends with his process.": "his",
    "A table of what people open": "what people",
    "The name is a riddle.": "riddle",
}


def found(tmp_path, name: str, text: str) -> list[str]:
    (tmp_path / name).write_text(text)
    return list(check_words.findings(tmp_path, [name]))


def test_the_project_has_none_of_the_words():
    command = [sys.executable, ROOT / "tools/check_words.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("sentence", "word"), PLANTED.items(), ids=PLANTED.values())
def test_a_refused_word_is_found_with_its_line_and_what_to_write(sentence, word, tmp_path):
    (line,) = found(tmp_path, "page.md", f"# One\n\n{sentence}\n")
    assert line.startswith(f"page.md:3: {word!r}: write ")


def test_each_pattern_has_a_sentence_that_it_refuses():
    for pattern in check_words.WORDS:
        assert any(re.search(rf"\b(?:{pattern})\b", sentence) for sentence in PLANTED), pattern


def test_docstrings_comments_and_messages_are_text_and_names_are_not(tmp_path):
    code = '"""Rooms."""\nroom = 1  # a house\nraise ValueError("it is told")\ntold = f"he {room}"\n'
    lines = found(tmp_path, "module.py", code)
    assert [line.split(":")[1] for line in lines] == ["1", "2", "3", "4"]
    assert found(tmp_path, "plain.py", "room = whoever\n") == []


def test_comments_and_messages_of_cpp_and_cmake_are_text(tmp_path):
    assert len(found(tmp_path, "a.cpp", 'int room = 1;  // a room\nthrow Error("told");\nint dear = 2;\n')) == 3
    assert len(found(tmp_path, "a.cmake", "set(room 1)\n# the room\n")) == 1


def test_code_in_a_page_and_targets_of_links_are_not_text(tmp_path):
    page = "The name `told` and [a page](whoever.md)\n```console\n$ told\n```\n```python\nx = 1  # told\n```\n"
    (line,) = found(tmp_path, "page.md", page)
    assert line.startswith("page.md:6: 'told'")


def test_a_file_that_breaks_the_rule_makes_the_check_fail(tmp_path):
    (tmp_path / "README.md").write_text("Nobody is told.\n")
    command = [sys.executable, ROOT / "tools/check_words.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("README.md:1: ") == 2
