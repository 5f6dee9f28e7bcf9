"""`LoadReport`: how many bytes of the loaded data are pages of the file, and which parts were copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from onecopy.base.text import size

if TYPE_CHECKING:
    from onecopy.files.page_cache import WarmJob

_SHOWN = 5


class Copied(NamedTuple):
    """Data from a file that was copied into this process's private memory instead of being mapped."""

    name: str
    """Name of the weight or array; "object.pickle" for the parts of an object that are not arrays."""
    bytes: int
    """Size of the copy in bytes."""
    reason: str
    """Why it was copied."""


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of `load_object` and `oc.torch.load_into`. `str` returns a summary."""

    path: str
    """Path of the mapped file, which is in the store if ``cast="store"`` converted the weights."""
    mapped: int
    """Number of bytes that are used in place: pages of the file, with one copy per machine."""
    copied: tuple[Copied, ...]
    """Data that was copied into this process's private memory."""
    tied: tuple[tuple[str, ...], ...] = ()
    """Groups of names that share one weight in the module."""
    missing: tuple[str, ...] = ()
    """Names in the module that the file does not contain; their weights are unchanged."""
    unexpected: tuple[str, ...] = ()
    """Names in the file that the module does not contain; their data was not read."""
    unused: tuple[str, ...] = ()
    """Names in the file and the module whose data is not used, because the module ties or computes the weights."""
    on_meta: tuple[str, ...] = ()
    """Names of parameters and buffers that are still on the meta device, without data."""
    warming: WarmJob | None = None
    """The job that reads the weights into memory; None without ``warm=True`` or a device."""
    sent: int = 0
    """Size in bytes of the weights that were copied to a device, or 0 without a device."""

    def __str__(self) -> str:
        first = f"{size(self.sent)} sent to a device" if self.sent else f"{size(self.mapped)} mapped"
        lines = [f"{self.path}: {first}, {size(sum(one.bytes for one in self.copied))} copied"]
        lines += lines_of(self.copied)
        for words, names in (
            ("the same weight", [" = ".join(group) for group in self.tied]),
            ("not in the file", self.missing),
            ("not in the module", self.unexpected),
            ("in the file, but not used", self.unused),
            ("still on the meta device", self.on_meta),
        ):
            if names:
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                lines.append(f"  {words}: {', '.join(names[:_SHOWN])}{more}")
        return "\n".join(lines)


def lines_of(copied: tuple[Copied, ...]) -> list[str]:
    """Return an indented line for each of the first copies, and a line with the number of other copies."""
    lines = [f"  {one.name}, {size(one.bytes)}: {one.reason}" for one in copied[:_SHOWN]]
    return [*lines, f"  and {len(copied) - _SHOWN} more"] if len(copied) > _SHOWN else lines
