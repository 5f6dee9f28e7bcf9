"""MkDocs hooks for what the site contains in addition to the committed pages.

`<!-- headers -->` becomes the comments at the head of all public headers. Links that leave `docs/` become text. A nav
item that ends in /* stands for the pages of that folder that no other item names.
"""

import itertools
import re
from pathlib import Path
from typing import Any

DOCS = Path("docs")
OUTSIDE_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)+((?:packages|include|tests|examples)/[^)]+|[A-Z]+\.md)\)")


def on_config(config: Any) -> Any:
    """Replace `folder/*` in the menu with pages."""
    named = {page for page in pages_of(config["nav"]) if not page.endswith("/*")}
    config["nav"] = expanded(config["nav"], named)
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Insert the generated parts of a page, and replace links that work only in a checkout."""
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation", "toc"]  # it is a menu itself
    markdown = re.sub(r"(notebooks/[\w-]+)\.ipynb\)", r"\1.md)", markdown)  # on the site a notebook is a page
    markdown = OUTSIDE_LINK.sub(r"\1 (`\2`)", markdown)
    return markdown.replace("<!-- headers -->", "\n".join(headers()))


def on_post_page(output: str, **_: Any) -> str:
    """Keep the theme from requesting numbers about the repository when a page is read."""
    return output.replace(' data-md-component="source"', "")


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same for pages that have no Markdown, such as 404.html."""
    return on_post_page(output_content)


def pages_of(items: list[Any]) -> list[str]:
    """List all pages of a menu."""
    pages: list[str] = []
    for item in items:
        for value in item.values() if isinstance(item, dict) else [item]:
            pages += [value] if isinstance(value, str) else pages_of(value)
    return pages


def expanded(items: list[Any], named: set[str]) -> list[Any]:
    """Return a menu with `folder/*` replaced by the pages that no other item names."""
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


def headers() -> list[str]:
    """Return the comment at the head of each public header, by module."""
    lines: list[str] = []
    for module in sorted(path for path in Path("include/onecopy").iterdir() if path.is_dir()):
        lines += [f"## {module.name}", ""]
        for path in sorted(module.rglob("*.hpp")):
            lines += [f"### `{path.relative_to('include')}`", "", *essay(path), ""]
    return lines


def essay(path: Path) -> list[str]:
    """Return the comment at the head of a file as Markdown, with indented code. Raise ValueError if there is none."""
    code = path.read_text().removeprefix("#pragma once").lstrip().splitlines()
    comment = [line[2:].removeprefix(" ") for line in itertools.takewhile(lambda line: line.startswith("//"), code)]
    if not comment:
        raise ValueError(f"{path} does not begin with a comment")
    lines = [""]
    for line in comment:
        if line.startswith("    ") != lines[-1].startswith("    "):
            lines.append("")  # so that Markdown distinguishes code from text
        lines.append(line if line.startswith("    ") else escaped(line))
    return lines


def escaped(line: str) -> str:
    """Return a line of prose with Markdown's special characters escaped; `code` stays."""
    parts = line.split("`")
    parts[::2] = [re.sub(r"([*_\[\]])", r"\\\1", part).replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)
