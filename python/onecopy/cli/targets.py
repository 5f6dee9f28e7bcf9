"""Opening of paths on the command line: arrays in one or several files, or bytes."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from onecopy.arrays import open_arrays
from onecopy.arrays.entries import READ_SUFFIXES
from onecopy.errors import FormatError
from onecopy.files import Mapping
from onecopy.named_files import SetError

if TYPE_CHECKING:
    from onecopy.arrays import ArrayFile


_SUFFIXES = (".safetensors", *READ_SUFFIXES)
"""Suffixes of the files that are expected to contain arrays."""


def opened(path: str) -> ArrayFile | Mapping:
    """Open any file; with the index of a set, or a model, also the files that it names.

    A file that is no array file is mapped as bytes; if its suffix is one of `NAMED`, with a warning, because it may be
    an incomplete download.

    Raises
    ------
    OSError
        A file cannot be opened.
    SetError
        The files of a set do not match.
    """
    try:
        return open_arrays(path)
    except SetError:
        raise
    except FormatError as error:
        if path.endswith(_SUFFIXES):
            warnings.warn(f"{error}; mapped as bytes", stacklevel=2)
        return Mapping(path)


def has_folder(path: str | None) -> bool:
    """Return whether the folder of the path exists; True also for stdout ("-") and None."""
    return path in (None, "-") or Path(str(path)).absolute().parent.is_dir()
