"""What a path on the command line stands for: arrays in one file or in several, or bytes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.arrays import open_arrays
from onecopy.arrays.entries import READ_SUFFIXES
from onecopy.arrays.members import SetError
from onecopy.errors import FormatError
from onecopy.files import Mapping

if TYPE_CHECKING:
    from onecopy.arrays import ArrayFile


_SUFFIXES = (".safetensors", *READ_SUFFIXES)
"""Suffixes of the files that are expected to contain arrays."""


def opened(path: str) -> ArrayFile | Mapping:
    """Open any file, and with the index of a set, or a model, the files that it names.

    A file that goes by the name of a format and is not of it is bytes like any other, with a warning: half a download
    should not pass for the whole.

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
    except FormatError as error:
        if path.endswith(_SUFFIXES):
            warnings.warn(f"{error}; taken as bytes", stacklevel=2)
        return Mapping(path)


def has_folder(path: str | None) -> bool:
    """Return whether a file could be written: its folder is there, or it is stdout ("-") or nothing."""
    return path in (None, "-") or Path(str(path)).absolute().parent.is_dir()
