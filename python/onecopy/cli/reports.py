"""Open the files given on a command line, and print the library's reports about them as JSON or sentences."""

from __future__ import annotations

import fnmatch
import warnings
from typing import TYPE_CHECKING, Any

from onecopy.arrays import open_arrays
from onecopy.arrays.entries import READ_SUFFIXES
from onecopy.base.text import counted, significant, size
from onecopy.cli.screen import share
from onecopy.errors import FormatError
from onecopy.files.companions import SetError
from onecopy.files.mapping import Mapping

if TYPE_CHECKING:
    from onecopy.arrays import ArrayFile


def names_matching(file: Any, pattern: str) -> list[str]:
    """Return the names of the arrays that match a pattern. Raise ValueError if no name matches."""
    names = [name for name in file.keys() if fnmatch.fnmatchcase(name, pattern)]  # noqa: SIM118
    if not names:
        raise ValueError(f"none of the {len(file)} arrays in {file.path} matches {pattern!r}")
    return names


def attributes_of(report: object) -> dict[str, Any]:
    """Return all public attributes of a report that are numbers, strings or None."""
    values = {name: getattr(report, name) for name in dir(report) if not name.startswith("_")}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str | None)}


def warm_sentences(name: str, report: Any) -> list[str]:
    """Format a report of `warm` as sentences."""
    if report.mechanism == "none" and report.complete and not report.filled and report.verified is None:
        return [f"{name}: {size(report.bytes)}, nothing to do.", *_reason(report)]
    rate = f"in {significant(report.seconds)} s ({significant(report.gib_per_s)} GiB/s)"
    huge = "unknown" if report.huge_share is None else f"{100 * report.huge_share:.0f} %"
    second = (
        f"By {report.mechanism}, {counted(report.threads, 'thread')}; {size(report.filled)} filled; "
        f"{report.minor_faults} minor and {report.major_faults} major faults; in huge pages: {huge}."
    )
    more = [] if report.complete else ["Not all of it is in memory."]
    more += [] if report.verified is None else [f"The checksums of {size(report.verified)} match."]
    return [f"{name}: {size(report.bytes)} {rate}; {_resident(report)}.", second, *more, *_reason(report)]


def evict_sentence(name: str, report: Any) -> str:
    """Format a report of `evict` as a sentence."""
    return " ".join([f"{name}: {size(report.bytes)}; {_resident(report)}.", *_reason(report)])


def _resident(report: Any) -> str:
    before, after = (
        "unknown" if cached is None else share(cached, report.bytes)
        for cached in (report.cached_before, report.cached_after)
    )
    return f"resident before {before}, now {after}"


def _reason(report: Any) -> list[str]:
    reason = str(report.reason or "").strip()
    return [reason[:1].upper() + reason[1:].rstrip(".") + "."] if reason else []


_SUFFIXES = (".safetensors", *READ_SUFFIXES)


def opened(path: str) -> ArrayFile | Mapping:
    """Open a file of arrays together with the files that an index or a model names. Map any other file as bytes."""
    try:
        return open_arrays(path)
    except SetError:
        raise
    except FormatError as error:
        if path.endswith(_SUFFIXES):  # perhaps an incomplete download
            warnings.warn(f"{error}; the file is mapped as bytes", stacklevel=2)
        return Mapping(path)
