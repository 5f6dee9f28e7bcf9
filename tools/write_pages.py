"""Write the generated parts of committed pages: `python tools/write_pages.py`. With --check, only report outdated ones.

The parts stand between `<!-- NAME -->` and `<!-- /NAME -->`, so that they can be read where the site is not built: the
help of commands, the public names of modules, each with the first sentence of its docstring, the tables of the newest
record of a benchmark, and the results of framework tests in tests/tested.jsonl.
"""

import importlib
import inspect
import json
import os
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[1]
NAMES = "names of "
HELP = "help of the command line"
"""The help of all commands but `onecopy bench`."""
RECORDS = ("structs", "stories")
"""The scenarios of `onecopy bench` whose newest record a page shows."""
SERVERS, VERSIONS = "memory of servers", "versions of frameworks"
"""Recorded by tests/frameworks/test_auto_servers.py and test_auto_versions.py."""
PART = re.compile(
    rf"<!-- ({NAMES}[\w.]+|{'|'.join((HELP, SERVERS, VERSIONS, *RECORDS))}) -->\n.*?<!-- /\1 -->", re.DOTALL
)


def helps() -> str:
    """Return the help of commands, as the command line prints it."""
    from onecopy.cli.command_line import onecopy

    found = [(path, text) for path, text in help_of(onecopy, "onecopy", None) if "bench" not in path]
    return "\n\n".join(f"## `{path}`\n\n```text\n{broken(text)}\n```" for path, text in found)


def broken(text: str) -> str:
    """Return the help of a command with lines of at most 120 characters, because click does not wrap choices."""
    return re.sub(r"^( *)(.{80,118}\|)(?=.{3,}$)", r"\1\2\n\1    ", text, flags=re.MULTILINE)


def help_of(command: click.Command, path: str, parent: click.Context | None) -> list[tuple[str, str]]:
    """Return the path and the help of a command, and of those below it."""
    name = path.rpartition(" ")[2]
    with click.Context(command, info_name=name, parent=parent, terminal_width=100) as context:
        found = [(path, command.get_help(context))]
        for below in command.list_commands(context) if isinstance(command, click.Group) else []:
            if (sub := command.get_command(context, below)) is not None:
                found += help_of(sub, f"{path} {below}", context)
    return found


def names(module_name: str) -> str:
    """Return a list of the public functions and classes of a module, with the first sentence of each docstring."""
    os.environ["ONECOPY_AUTO"] = "0"  # otherwise `onecopy.auto` replaces functions of frameworks here
    module = importlib.import_module(module_name)
    lines = []
    for name in sorted(module.__all__):
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            line = f"* `{name}`: {first_sentence(inspect.getdoc(value) or '')}"
            lines.append(
                textwrap.fill(line, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            )
    return "\n".join(lines)


def first_sentence(docstring: str) -> str:
    """Return the first paragraph of a docstring up to its first full stop, as Markdown."""
    paragraph = docstring.partition("\n\n")[0].replace("\n", " ").replace("``", "`")
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0].rstrip(".:")


def tables(scenario: str) -> str:
    """Return the tables and sentences of the newest record of a scenario."""
    from onecopy_bench.cli import SCENARIOS
    from onecopy_bench.record import read
    from onecopy_bench.stories import page, reading
    from onecopy_bench.stories.story import STORIES

    newest = max(ROOT.glob(f"packages/bench/results/*/*-{scenario}.jsonl"), key=lambda path: path.name)
    if scenario == reading.NAME:
        return page.block(reading.read(newest), STORIES)
    shown, (record,) = SCENARIOS[scenario], read(newest)
    parts = [table.markdown() for table in shown.tables(record)]
    return "\n\n".join([shown.heading(record), *parts, "\n".join(f"* {words}" for words in shown.sentences(record))])


def tested(kind: str) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the recorded lines of a kind by package and name, the lowest version of each first."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    lines = map(json.loads, (ROOT / "tests/tested.jsonl").read_text().splitlines())
    for line in sorted((line for line in lines if line["kind"] == kind), key=lambda line: numbers(line["version"])):
        found.setdefault((line["package"], line["name"]), []).append(line)
    return dict(sorted(found.items()))


def numbers(version: str) -> list[int]:
    """Return a version as numbers, which can be compared."""
    return [int(number) for number in re.findall(r"\d+", version)]


def servers() -> str:
    """Return a table of the memory of each server's workers."""
    rows = ["| program | without (MB) | with `onecopy run` |", "|---|---|---|"]
    for (_, name), lines in tested("server").items():
        newest = lines[-1]
        before, after = (round(newest[key] / 1e6) for key in ("before", "after"))
        rows.append(f"| {name} {newest['version']} | {before} | {after} |")
    return "\n".join(rows)


def versions() -> str:
    """Return a table of the lowest and the newest version with which the calls of each package were tested."""
    calls: dict[tuple[str, str], list[str]] = {}
    for (package, name), lines in tested("call").items():
        tested_with = ", ".join(dict.fromkeys((lines[0]["version"], lines[-1]["version"])))
        calls.setdefault((package, tested_with), []).append(re.sub(r"[\w.]*\.\w+", r"`\g<0>`", name))
    rows = [f"| {package} {tested_with} | {', '.join(names)} |" for (package, tested_with), names in calls.items()]
    return "\n".join(["| tested versions | calls |", "|---|---|", *rows])


def made(name: str) -> str:
    """Return the text of the part with this name."""
    if name in RECORDS:
        return tables(name)
    if name in (SERVERS, VERSIONS):
        return servers() if name == SERVERS else versions()
    return helps() if name == HELP else names(name.removeprefix(NAMES))


def written(page: str) -> str:
    """Return a page with its generated parts as they should be now."""
    return PART.sub(
        lambda found: f"<!-- {found[1]} -->\n\n{made(found[1])}\n\n<!-- /{found[1]} -->", (ROOT / page).read_text()
    )


COMMITTED = (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/bench/results/*/*.md"))
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in COMMITTED if PART.search(path.read_text()))
"""The pages that have a generated part."""


def main() -> int:
    """Write the pages; with --check, report outdated pages instead, and return 1 if there are any."""
    old = [page for page in PAGES if written(page) != (ROOT / page).read_text()]
    for page in old:
        if "--check" in sys.argv[1:]:
            print(f"{page} is not up to date: python tools/write_pages.py")
        else:
            (ROOT / page).write_text(written(page))
    return int("--check" in sys.argv[1:] and bool(old))


if __name__ == "__main__":
    sys.exit(main())
