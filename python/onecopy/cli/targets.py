"""What a path on the command line stands for: arrays in one file or in several, or bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.arrays import open_arrays
from onecopy.base import FormatError
from onecopy.files import Mapping
from onecopy.sets import SetError

if TYPE_CHECKING:
    from onecopy.arrays import ArrayFile


def opened(path: str) -> ArrayFile | Mapping:
    """Open any file, and with the index of a set, or a model, the files that it names.

    Raises
    ------
    OSError
        A file that cannot be opened.
    SetError
        A set whose files do not fit together.
    """
    try:
        return open_arrays(path)
    except SetError:
        raise
    except FormatError:
        return Mapping(path)


def has_folder(path: str | None) -> bool:
    """Tell whether a file could be written: its folder is there, or it is stdout ("-") or nothing."""
    return path in (None, "-") or Path(str(path)).absolute().parent.is_dir()
