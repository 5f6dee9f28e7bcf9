"""What pages say about the code is what the code says: variables, defaults, options, targets, times and sizes."""

import re
import shlex

import click
import pytest
from tests.python.project.test_docs import PAGES, blocks, name_of
from tests.support.places import ROOT

from onecopy.cli.command_line import onecopy

INTERNAL = {"ONECOPY_RUN", "ONECOPY_SNAPSHOTS"}
"""Variables that `onecopy run` sets for the processes that it starts."""

DIFFERS = {"CHANGELOG.md", *(path for path in map(name_of, PAGES) if path.startswith("packages/bench/results/"))}
"""Pages about what was: options as they were then."""


def text_of(*names: str) -> str:
    return "\n".join((ROOT / name).read_text() for name in names)


def test_one_page_lists_the_variables_that_are_read():
    folders = [ROOT / "python/onecopy", *ROOT.glob("packages/[imor]*/src"), ROOT / "src"]
    sources = [path for folder in folders for path in folder.rglob("*") if path.suffix in {".py", ".cpp"}]
    read = {name for path in sources for name in re.findall(r'"(ONECOPY_[A-Z_]+)"', path.read_text())}
    listed = re.findall(r"^\| `(ONECOPY_\w+)`", text_of("docs/howto/where-the-cache-lives.md"), re.MULTILINE)
    assert sorted(listed) == sorted(read - INTERNAL)


def test_pages_and_help_name_the_threads_that_warm_takes():
    (threads,) = re.findall(r"reading_threads = (\d+);", text_of("src/page_cache/warm_plan.cpp"))
    assert f"`threads=` is {threads} by default" in text_of("docs/howto/open-and-warm.md")
    for verb in ("warm", "verify"):
        command = onecopy.get_command(click.Context(onecopy), verb)
        (option,) = [option for option in command.params if "--threads" in option.opts]
        assert option.help == f"Number of threads; default: {threads}."


def commands_of(page: str) -> list[str]:
    """List the commands of `onecopy` that a page shows: in blocks of a shell, and in `code`."""
    path = ROOT / page
    lines = [line for language, _, text in blocks(path) if language in {"console", "sh"} for line in text.splitlines()]
    lines += re.findall(r"`(onecopy [^`]+)`", path.read_text())
    return [line.removeprefix("$ ").partition("  #")[0] for line in lines if re.match(r"(\$ )?onecopy \w", line)]


def unknown_options(line: str) -> list[str]:
    """List the options of a command that the command line does not have."""
    command: click.Command = onecopy
    path: list[str] = []
    unknown = []
    try:
        words = shlex.split(line)[1:]
    except ValueError:  # an example that is cut short
        return []
    for word in words:
        if word == "--" or (word == "|" or word.startswith((">", "&"))):
            break
        if word.startswith("--"):
            names = {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
            if word.partition("=")[0] not in names | {"--help", "--version"}:
                unknown.append(" ".join([*path, word]))
        elif isinstance(command, click.Group) and (below := command.get_command(click.Context(command), word)):
            command, path = below, [*path, word]
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z]+", word):
            unknown.append(" ".join([*path, word]))
    return unknown


@pytest.mark.parametrize("page", [page for page in map(name_of, PAGES) if page not in DIFFERS and commands_of(page)])
def test_commands_of_a_page_have_the_options_that_they_name(page):
    assert [name for line in commands_of(page) for name in unknown_options(line)] == []


def test_an_unknown_option_is_seen():
    lines = ["onecopy warm a --glob x", "onecopy store sweep", "onecopy run --keep -- python a.py --glob x"]
    assert [unknown_options(line) for line in lines] == [["warm --glob"], ["store sweep"], []]


def test_targets_of_make_that_pages_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE))
    pages = text_of("README.md", "CONTRIBUTING.md", "tests/README.md")
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]+)", pages, re.MULTILINE))
    assert len(named) > 10
    assert named <= targets


def test_the_documentation_fits_in_75_pages():
    pages = [path for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".ipynb"}]
    assert len(pages) <= 75


def test_each_of_the_five_questions_has_a_page_with_numbers_limits_and_alternatives():
    questions = re.findall(r"^\d\. \*\*\[(How .*?\?)\]\((.*?)\)", text_of("docs/index.md"), re.MULTILINE)
    assert len(questions) == 5
    for question, path in questions:
        page = text_of(f"docs/{path}")
        assert page.startswith(f"# {question}\n")
        headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
        assert headings[-4:] == ["Numbers", "Limits", "When another tool is better", "What next"]
        assert "../../packages/bench/RESULTS.md" in page


def test_pages_and_metadata_agree_on_the_versions_of_python():
    named = re.findall(r"Python :: (3\.\d+)\"", text_of("pyproject.toml"))
    assert f"CPython {named[0]} to {named[-1]}." in text_of("SECURITY.md")
    (tested,) = re.findall(r"^\| Tested \| .*", text_of("README.md"), re.MULTILINE)
    assert re.findall(r"3\.\d+", tested) == named


def test_every_example_is_listed():
    listed = re.findall(r"^\| `([\w/.]+)`", text_of("examples/README.md"), re.MULTILINE)
    programs = (path for path in (ROOT / "examples").rglob("*.*") if path.suffix in {".py", ".cpp", ".c", ".rs", ".R"})
    names = {path.relative_to(ROOT / "examples").as_posix() for path in programs}
    assert set(listed) == {name for name in names if not name.startswith("cmake_consumer/")} | {"cmake_consumer/"}


def test_folders_that_contributing_names_exist():
    path = r"(?<![\w/])((?:tests|docs|packages|python|src|tools|build/tests)/[\w/.-]*[\w/])"
    named = re.findall(path, text_of("CONTRIBUTING.md"))
    assert len(named) > 5
    assert [path for path in named if not path.startswith("build") and not (ROOT / path).exists()] == []
