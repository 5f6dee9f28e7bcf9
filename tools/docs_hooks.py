"""What the site says of itself is made while it is built: the menu, the help of the command line, lists of pages.

A page may hold `<!-- help of the command line -->`, `<!-- decisions -->`, `<!-- headers -->` and
`<!-- page of the stories -->`, which is that of the newest record; a nav item that ends in /* is what the folder has
beyond the items that are named.
"""

import itertools
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File

DOCS = Path("docs")
RECORDS = Path("bench/results")


def on_config(config: Any) -> Any:
    """Name in the menu what `folder/*` stands for."""
    named = {page for page in pages_of(config["nav"]) if not page.endswith("/*")}
    config["nav"] = expanded(config["nav"], named)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Put the picture of the stories beside their page."""
    picture = stories().with_name("stories.svg")
    files.append(File.generated(config, picture.name, abs_src_path=str(picture.absolute())))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put what is asked for into a page."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]  # it is a menu itself
    markdown = re.sub(r"(notebooks/[\w-]+)\.ipynb\)", r"\1.md)", markdown)  # on the site a notebook is a page
    markdown = markdown.replace("<!-- help of the command line -->", "\n\n".join(helps()))
    markdown = markdown.replace("<!-- decisions -->", "\n".join(decisions()))
    markdown = markdown.replace("<!-- page of the stories -->", stories().read_text().partition("\n")[2])
    return markdown.replace("<!-- headers -->", "\n".join(headers()))


def pages_of(items: list[Any]) -> list[str]:
    """List all pages of a menu."""
    pages: list[str] = []
    for item in items:
        for value in item.values() if isinstance(item, dict) else [item]:
            pages += [value] if isinstance(value, str) else pages_of(value)
    return pages


def expanded(items: list[Any], named: set[str]) -> list[Any]:
    """Return a menu with `folder/*` replaced by the pages that nobody names."""
    menu: list[Any] = []
    for item in items:
        if isinstance(item, str) and item.endswith("/*"):
            folder = (DOCS / item).parent
            pages = sorted([*folder.glob("*.md"), *(path.with_suffix(".md") for path in folder.glob("*.ipynb"))])
            found = (page.relative_to(DOCS).as_posix() for page in pages)
            menu += [page for page in found if page not in named]
        elif isinstance(item, dict):
            menu.append(
                {key: expanded(value, named) if isinstance(value, list) else value for key, value in item.items()}
            )
        else:
            menu.append(item)
    return menu


def stories() -> Path:
    """Return the page of the newest record of the stories, beside it; its first line is a title."""
    newest = max(RECORDS.glob("*/*-stories.jsonl"), key=lambda path: path.name)
    return newest.with_name("stories.md")


def decisions() -> list[str]:
    """List the decisions: their titles are links."""
    pages = sorted(DOCS.glob("decisions/[0-9]*.md"))
    titles = [re.sub(r"^# \d+\. ", "", page.read_text().partition("\n")[0]) for page in pages]
    return [
        f"{number}. [{title}]({page.name})" for number, (page, title) in enumerate(zip(pages, titles, strict=True), 1)
    ]


def headers() -> list[str]:
    """Return what stands at the head of each public header, by room."""
    lines: list[str] = []
    for room in sorted(path for path in Path("include/onecopy").iterdir() if path.is_dir()):
        lines += [f"## {room.name}", ""]
        for path in sorted(room.rglob("*.hpp")):
            lines += [f"### `{path.relative_to('include')}`", "", *essay(path), ""]
    return lines


def essay(path: Path) -> list[str]:
    """Return the comment that a header begins with, as Markdown: what it indents is code. ValueError: there is none."""
    code = path.read_text().removeprefix("#pragma once").lstrip().splitlines()
    comment = [line[2:].removeprefix(" ") for line in itertools.takewhile(lambda line: line.startswith("//"), code)]
    if not comment:
        raise ValueError(f"{path} says nothing of itself")
    lines = [""]
    for line in comment:
        if line.startswith("    ") != lines[-1].startswith("    "):
            lines.append("")  # or Markdown takes code for text, or text for code
        lines.append(line if line.startswith("    ") else escaped(line))
    return lines


def escaped(line: str) -> str:
    """Return a line of prose so that Markdown takes its signs for what they are; `code` stays."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*_\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def helps() -> list[str]:
    """Return the help of every command, as the command line prints it."""
    from onecopy.cli.command_line import onecopy

    return [f"## `{' '.join(path)}`\n\n```text\n{text}\n```" for path, text in help_of(onecopy, ("onecopy",), None)]


def help_of(
    command: click.Command, path: tuple[str, ...], parent: click.Context | None
) -> list[tuple[tuple[str, ...], str]]:
    """Return the help of a command and of those below it."""
    with click.Context(command, info_name=path[-1], parent=parent, max_content_width=100) as context:
        found = [(path, command.get_help(context))]
        for name in command.list_commands(context) if isinstance(command, click.Group) else []:
            below = command.get_command(context, name)
            if below is not None:
                found += help_of(below, (*path, name), context)
    return found
