"""Which processes are sampled, by question: each a case of the record, in the order of its tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onecopy_bench.scenarios.monitor import target
from onecopy_bench.scenarios.monitor.ways import ACCURACY, COST, CROWD, DISTURBANCE

MAPPINGS = 611
"""Of an interpreter that has imported numpy, scipy and some more."""
TREE, SHARERS = 8, 4
FRESH = 256 << 20
_MORE = 3 << 20
"""Private memory of a process that idles, estimated."""

STILL, WHILE, AFTER = "still", "while", "after"
"""When it is sampled: before it does anything, while it does, or when it has."""


@dataclass(frozen=True, slots=True)
class Case:
    """Which processes are sampled, and when.

    Attributes
    ----------
    question, words
        The name of the case.
    errand
        What each process has to be; its path is "file" where it maps the file, "small" the beginning of it.
    copies
        How many such processes are started.
    when
        Of what they do.
    """

    question: str
    words: str
    errand: target.Errand
    copies: int = 1
    when: str = STILL

    @property
    def name(self) -> tuple[str, ...]:
        """As it stands in a record."""
        return self.question, self.words

    @property
    def memory(self) -> float:
        """Bytes of memory that cannot be dropped."""
        errand = self.errand
        copied = errand.size * (errand.count - 1) / 3 if self.when != STILL and errand.kind == target.FORKED else 0
        count = self.copies * (errand.count if errand.kind in (target.FORKED, target.MEMORY, target.CROWD) else 1)
        return errand.size + copied + count * _MORE


def cases_of(question: str, size: int, seconds: float, processes: int) -> Iterator[Case]:
    """Yield the cases of a question, in the order of its tables.

    Parameters
    ----------
    question
        One of `onecopy_bench.scenarios.monitor.ways.QUESTIONS`.
    size
        Bytes of the file; what is shared by forking is a quarter of it.
    seconds
        For which processes copy, or fault.
    processes
        Of the crowd.

    Examples
    --------
    >>> [case.words for case in cases_of("crowd", 1 << 30, 5.0, 500)]
    ['500 processes that idle']
    """
    mapped = target.Errand(target.MAPPED, "file")
    shared = max(size // 4, 3 * target.PAGE)
    tree = target.Errand(target.FORKED, size=shared, count=TREE, seconds=seconds)
    if question == COST:
        yield Case(COST, "bare Python", target.Errand(target.BARE))
        yield Case(COST, f"{MAPPINGS} mappings", target.Errand(target.MAPPINGS, "small", count=MAPPINGS))
        yield Case(COST, f"{TREE} processes that map one file", mapped, TREE)
        yield Case(COST, f"{TREE} processes, forked", tree)
    elif question == CROWD:
        crowd = target.Errand(target.CROWD, count=processes)
        yield Case(CROWD, f"{processes} process{'' if processes == 1 else 'es'} that idle", crowd)
    elif question == ACCURACY:
        for count in (1, 2, 4, 8):
            words = "1 process that maps a file" if count == 1 else f"{count} processes that map one file"
            yield Case(ACCURACY, words, mapped, count)
        for when in (STILL, WHILE, AFTER):
            words = {STILL: "before they copy a third", WHILE: "while they copy it", AFTER: "after that"}[when]
            yield Case(ACCURACY, f"{TREE} processes, forked: {words}", tree, when=when)
        memory = target.Errand(target.MEMORY, size=shared, count=SHARERS)
        yield Case(ACCURACY, f"{SHARERS} processes with a memory file", memory)
    elif question == DISTURBANCE:
        fresh = max(min(FRESH, size // 4) // target.PIECE, 1) * target.PIECE
        for words, path in (("faults", ""), ("faults, beside a mapped file", "file")):
            errand = target.Errand(target.FAULTS, path, fresh, seconds=seconds)
            yield Case(DISTURBANCE, words, errand, when=WHILE)
