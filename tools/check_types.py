"""Check that no C++ namespace defines two types of the same name: tools/check_types.py [ROOT].

Two definitions of one type in one namespace break the one-definition rule, and no compiler or linker reports it: the
program uses either. A type in an unnamed namespace counts with the namespace around it, because it becomes ambiguous
as soon as its file includes the other's header. Two unnamed namespaces of different files may have the same name.
"""

import re
from collections import defaultdict
from pathlib import Path

from sentences import report

FOLDERS = ("include", "src", "bindings")
COMMENT_OR_TEXT = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
TOKEN = re.compile(
    r"(?:inline\s+)?namespace\s*(?P<space>[\w:]*)\s*\{"
    r"|(?:class|struct|union|enum(?:\s+class)?)\s+(?P<type>\w+)(?:\s+final)?(?:\s*:(?!:)[^{};()]*)?\s*\{"
    r"|[{}]"
)
UNNAMED = "(unnamed)"


def types_of(source: str) -> list[tuple[str, str]]:
    """Return (namespace, name) of each type that is defined at the level of a namespace."""
    found = []
    spaces: list[str | None] = []  # the namespace of each open brace; None: another kind of brace
    for token in TOKEN.finditer(COMMENT_OR_TEXT.sub(" ", source)):
        if token[0] == "}":
            del spaces[-1:]
            continue
        if token["type"] and None not in spaces:
            found.append(("::".join(space for space in spaces if space), token["type"]))
        spaces.append(None if token["space"] is None else token["space"] or UNNAMED)
    return found


def twins(root: Path) -> list[str]:
    """Return one sentence for each name of two types in a namespace."""
    files: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    named: set[tuple[str, str]] = set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.[ch]pp")):
            for space, name in types_of(path.read_text()):
                visible = "::".join(part for part in space.split("::") if part != UNNAMED)
                files[visible, name].append(str(path.relative_to(root)))
                if UNNAMED not in space:
                    named.add((visible, name))
    return [
        f"{space}::{name} is defined in {' and in '.join(places)}"
        for (space, name), places in sorted(files.items())
        if len(places) > 1 and ((space, name) in named or len(set(places)) < len(places))
    ]


if __name__ == "__main__":
    report(twins)
