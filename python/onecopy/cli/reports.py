"""Reports of the library, as JSON and in sentences.

The facts are the public attributes of a report object; which ones there are is the library's business, so a
new one appears in the JSON by itself.
"""

from __future__ import annotations

from typing import Any

from onecopy.cli.words import share, significant, size


def facts_of(report: object) -> dict[str, Any]:
    """Return every public attribute of a report that JSON can hold."""
    facts = {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}
    return {name: fact for name, fact in facts.items() if isinstance(fact, bool | int | float | str | None)}


def warm_sentences(name: str, report: Any) -> list[str]:
    """Return what warming did: how much, how fast, from which state to which, by which means, and why."""
    if report.mechanism == "none" and report.complete and not report.filled and report.verified is None:
        return [f"{name}: {size(report.bytes)}, nothing to do.", *reason_sentences(report)]
    before = _part(report.cached_before, report.bytes)
    after = _part(report.cached_after, report.bytes)
    first = (
        f"{name}: {size(report.bytes)} in {significant(report.seconds)} s"
        f" ({significant(report.gib_per_s)} GiB/s); resident before {before}, now {after}."
    )
    threads = f"{report.threads} thread{'' if report.threads == 1 else 's'}"
    huge = "unknown" if report.huge_share is None else f"{100 * report.huge_share:.0f} %"
    second = (
        f"By {report.mechanism}, {threads}; {size(report.filled)} filled; {report.minor_faults} minor and"
        f" {report.major_faults} major faults; in huge pages: {huge}."
    )
    third = [] if report.complete else ["Not complete."]
    fourth = [] if report.verified is None else [f"Checksums agree over {size(report.verified)}."]
    return [first, second, *third, *fourth, *reason_sentences(report)]


def evict_sentence(name: str, report: Any) -> str:
    """Return what evicting did."""
    before = _part(report.cached_before, report.bytes)
    after = _part(report.cached_after, report.bytes)
    words = [
        f"{name}: {size(report.bytes)}; resident before {before}, now {after}.",
        *reason_sentences(report),
    ]
    return " ".join(words)


def reason_sentences(report: Any) -> list[str]:
    """Return the reason of a report as a sentence, if it gives one.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> reason_sentences(SimpleNamespace(reason="2 MiB pages requested before reading"))
    ['2 MiB pages requested before reading.']
    >>> reason_sentences(SimpleNamespace(reason="mapped elsewhere; it stays."))
    ['Mapped elsewhere; it stays.']
    """
    reason = str(report.reason or "").strip()
    return [reason[:1].upper() + reason[1:].rstrip(".") + "."] if reason else []


def _part(cached: int | None, whole: int) -> str:
    return "unknown" if cached is None else share(cached, whole)
