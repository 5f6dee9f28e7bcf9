"""What a file or call is refused for, as tests compare it: the kind, place, number and path, and not its words."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import onecopy as oc


def refusal(error: oc.FormatError) -> str:
    """Return "truncated at 12", or "malformed" where the place is unknown."""
    return error.kind.value + ("" if error.offset is None else f" at {error.offset}")


@contextlib.contextmanager
def os_error(number: int, path: Path | str | None = None, match: str | None = None) -> Iterator[None]:
    """Expect an OSError with this number, of this path if one is given."""
    with pytest.raises(OSError, match=match) as raised:
        yield
    assert raised.value.errno == number
    assert path is None or raised.value.filename == str(path)
