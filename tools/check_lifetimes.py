"""Check that shared state is protected by the types made for this purpose: tools/check_lifetimes.py [ROOT].

A mutex must survive forks (src/files/fork_mutex.hpp). In the bindings, a member that shares an object is a Shared, a
Pin or a WithoutGil (bindings/shared.hpp), and the GIL is released and acquired by their types alone.
"""

import re
from pathlib import Path
from typing import NamedTuple

from sentences import report


class Rule(NamedTuple):
    """A pattern that no line may match outside the exempt files."""

    pattern: re.Pattern[str]
    folders: tuple[str, ...]
    exempt: frozenset[str]
    reason: str


RULES = (
    Rule(
        re.compile(r"\bstd::(recursive_|timed_|recursive_timed_|shared_|shared_timed_)?mutex\b"),
        ("include", "src", "bindings"),
        # A forked child uses no mutex of its parent's jobs or calls.
        frozenset(
            {
                "src/files/fork_mutex.hpp",
                "src/files/fork_mutex.cpp",
                "src/page_cache/warm.cpp",
                "include/onecopy/base/pieces.hpp",
            }
        ),
        "a fork may leave it locked for ever in the child: use ForkMutex",
    ),
    Rule(
        re.compile(r"^\s+(PyObject_HEAD )?(mutable |const )*std::(shared|weak)_ptr<.*>\s+\w+(\s*=.*|\{.*\})?;"),
        ("bindings",),
        frozenset({"bindings/shared.hpp"}),
        "it can be dropped during a call, under the GIL: use Shared, Pin or WithoutGil",
    ),
    Rule(
        re.compile(r"\b(PyEval_(Save|Restore)Thread|PyGILState_\w+|Py_BEGIN_ALLOW_THREADS|gil_scoped_\w+)\b"),
        ("bindings",),
        frozenset({"bindings/gil.hpp", "bindings/shared.hpp"}),
        "use ReleaseGil, AcquireGil or without_gil",
    ),
)


def violations(root: Path) -> list[str]:
    """Return one sentence for each line that bypasses the types."""
    found = []
    for rule in RULES:
        for folder in rule.folders:
            for path in sorted((root / folder).rglob("*.[ch]pp")):
                name = str(path.relative_to(root))
                if name in rule.exempt:
                    continue
                for number, line in enumerate(path.read_text().splitlines(), 1):
                    if match := rule.pattern.search(line.partition("//")[0]):
                        found.append(f"{name}:{number}: {match[0].strip()}: {rule.reason}")
    return found


if __name__ == "__main__":
    report(violations)
