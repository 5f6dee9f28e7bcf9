"""Refuse words that make text hard to read: `python tools/check_words.py [ROOT]`. `make check` runs it.

In Markdown and notebooks all text counts; in Python docstrings, comments and string literals; in C++, CMake and make
files every line that has a comment or a string literal. Each finding is `file:line: 'word': write ... instead`.
"""

import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

CHECKED = [
    "*.md",
    "Makefile",
    "CMakeLists.txt",
    "packages/bench/**/*.cpp",
    "packages/bench/**/*.hpp",
    "bindings/**/*.cpp",
    "bindings/**/*.hpp",
    "cmake/**/*",
    "docs/**/*.md",
    "docs/**/*.ipynb",
    "examples/**/*.cpp",
    "examples/**/*.hpp",
    "examples/**/*.py",
    "fuzz/**/*.cpp",
    "fuzz/**/*.hpp",
    "include/**/*.hpp",
    "packages/**/*.py",
    "packages/*/*.md",
    "python/**/*.py",
    "src/CMakeLists.txt",
    "src/**/*.cpp",
    "src/**/*.hpp",
    "tests/**/*.py",
    "tests/README.md",
    "tests/**/*.cpp",
    "tests/**/*.hpp",
    "tools/**/*.py",
]
"""What is checked today, as patterns of paths; one more line checks more of the project."""

WORDS = {
    r"he|him|his|himself": "the process, the caller, its",
    r"whoever|whomever": "any process that, the caller that",
    r"somebody(?:'s)?|someone(?:'s)?": "another process, another user",
    r"nobody(?:'s)?|no one": "no process, no caller, nothing",
    r"everybody(?:'s)?": "every process, every user",
    r"told": "reported, given",
    r"tells": "reports",
    r"looks at": "samples, reads",
    r"is looked at|are looked at": "is sampled, is read",
    r"of no file": "anonymous",
    r"numbers of processes": "PIDs",
    r"processors?": "CPU, CPUs",
    r"house|houses": "project, tree",
    r"rooms?": "module; for space: space",
    r"dear(?:er|est)?": "expensive",
    r"lonely": "isolated",
    r"per host|once per host|on this host|this host": "per machine, on this machine",
    r"letting go|lets go|let go": "release, evict",
    r"cannot be had": "is unavailable",
    r"kin|brethren": "similar tools",
    r"what people": "what programs",
    r"riddle": "a plain sentence",
}
"""Pattern of the refused word, and what to write instead."""

EXCEPTIONS = {
    "tools/check_words.py": r"",  # it lists the words
    "Makefile": r"grep -hE",  # an option
    "packages/bench/src/onecopy_bench/system.py": r"model name",  # of /proc/cpuinfo
    "packages/bench/tests/test_record.py": r"model name",
    "tools/fuzz_seeds.py": r"K.x01",  # bytes of a pickle
    "packages/monitor/src/onecopy_monitor/recording.py": r'"processors"',  # a key of the file format
    "tests/python/project/test_check_words.py": r"",  # its sentences have the words
    "tests/support/hostile_files.py": r"riddle",  # an unknown kind in a hostile file
}
"""Lines of a file that may stay: those in which the pattern is found, with a reason beside each."""

REFUSED = re.compile("|".join(rf"(?P<w{i}>\b(?:{word})\b)" for i, word in enumerate(WORDS)), re.IGNORECASE)
INSTEAD = list(WORDS.values())


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are prose, with their numbers."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from python_prose(text)
    elif path.suffix == ".md":
        yield from markdown_prose(text)
    elif path.suffix in {".cpp", ".hpp"}:
        yield from ((n, line) for n, line in enumerate(text.splitlines(), 1) if "//" in line or '"' in line)
    elif path.suffix in {".cmake", ".txt", ".in"} or path.name == "Makefile":
        yield from ((n, line) for n, line in enumerate(text.splitlines(), 1) if "#" in line or '"' in line)
    elif path.suffix == ".ipynb":
        yield from enumerate(text.splitlines(), 1)


def python_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield comments and string literals, line by line."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in kinds:
            formatted = token.type == tokenize.STRING and "f" in token.string[:2].lower()  # one token until Python 3.12
            text = re.sub(r"\{[^{}]*\}", "", token.string) if formatted else token.string
            yield from enumerate(text.splitlines(), token.start[0])


def markdown_prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines without `code` and targets of links; a fenced block of output or of a shell counts as code."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fence = "" if fence else line.strip("` ").split(" ")[0] or "text"
        elif fence in {"", "python", "cpp", "c++"}:
            yield number, re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "", line))


def findings(root: Path, patterns: list[str]) -> Iterator[str]:
    """Yield one line for each refused word."""
    for path in sorted({path for pattern in patterns for path in root.glob(pattern) if path.is_file()}):
        name = path.relative_to(root).as_posix()
        allowed = re.compile(EXCEPTIONS.get(name, r"(?!)"))
        for number, line in prose_of(path):
            if allowed.search(line):
                continue
            for found in REFUSED.finditer(line):
                instead = INSTEAD[int(str(found.lastgroup)[1:])]
                yield f"{name}:{number}: {found[0]!r}: write {instead} instead"


def main() -> int:
    """Print the findings; 1 if there are any."""
    found = list(findings(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]), CHECKED))
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
