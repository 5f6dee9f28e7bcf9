"""Write the generated parts of committed pages: `python tools/write_pages.py`. With --check, only report old ones.

The parts stand between `<!-- NAME -->` and `<!-- /NAME -->`, so that they can be read where the site is not built: the
help of every command in docs/reference/command-line.md, and the list of decisions in docs/decisions/index.md.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import click

DOCS = Path(__file__).parents[1] / "docs"


def helps() -> str:
    """Return the help of every command, as the command line prints it."""
    from onecopy.cli.command_line import onecopy

    return "\n\n".join(f"## `{path}`\n\n```text\n{text}\n```" for path, text in help_of(onecopy, "onecopy", None))


def help_of(command: click.Command, path: str, parent: click.Context | None) -> list[tuple[str, str]]:
    """Return the path and the help of a command, and of those below it."""
    name = path.rpartition(" ")[2]
    with click.Context(command, info_name=name, parent=parent, terminal_width=100) as context:
        found = [(path, command.get_help(context))]
        for below in command.list_commands(context) if isinstance(command, click.Group) else []:
            if (sub := command.get_command(context, below)) is not None:
                found += help_of(sub, f"{path} {below}", context)
    return found


def decisions() -> str:
    """Return a list of the decisions, with their titles as links."""
    lines = []
    for number, page in enumerate(sorted((DOCS / "decisions").glob("[0-9]*.md")), 1):
        title = re.sub(r"^# \d+\. ", "", page.read_text().partition("\n")[0])
        lines.append(f"{number}. [{title}]({page.name})")
    return "\n".join(lines)


PARTS: dict[str, tuple[str, Callable[[], str]]] = {
    "reference/command-line.md": ("help of the command line", helps),
    "decisions/index.md": ("decisions", decisions),
}
"""For each page, the name of its generated part, and what makes it."""


def written(page: str) -> str:
    """Return a page with its generated part as it should be now. ValueError: the page has no such part."""
    name, make = PARTS[page]
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, mark, rest = (DOCS / page).read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not mark or not closed:
        raise ValueError(f"docs/{page}: no part between {begin} and {end}")
    return f"{before}{begin}\n\n{make()}\n\n{end}{after}"


def main() -> int:
    """Write the pages; with --check, report those that are not as they should be, and return 1 if there are any."""
    old = [page for page in PARTS if written(page) != (DOCS / page).read_text()]
    for page in old:
        if "--check" in sys.argv[1:]:
            print(f"docs/{page} is not up to date: python tools/write_pages.py")
        else:
            (DOCS / page).write_text(written(page))
    return int("--check" in sys.argv[1:] and bool(old))


if __name__ == "__main__":
    sys.exit(main())
