"""`SealedArray`: a read-only array whose pages other processes map."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

from onecopy import _core
from onecopy.scratch_arrays.array_protocol import ArrayProtocol, Kind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from onecopy.files import Identity

__all__ = ["SealedArray"]


class SealedArray(ArrayProtocol):
    """A read-only scratch array. `Scratch.seal` returns it.

    It pickles as a handle of about a hundred bytes. Unpickling in another process of the same user maps the same pages
    without a copy, as long as some process has the array open; otherwise it raises FileNotFoundError. `onecopy.warm`,
    `evict` and `residency` accept it.

    Examples
    --------
    >>> import onecopy as oc, pickle
    >>> with oc.scratch((2, 3), "u2") as canvas:
    ...     canvas.array[:] = 7
    ...     sealed = canvas.seal()
    >>> pickle.loads(pickle.dumps(sealed)).array.sum()
    np.uint64(42)
    >>> sealed.array[0, 0] = 1
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """

    def __init__(self, core: _core.Mapping, kind: Kind, head: int) -> None:
        self._core = core
        self._kind = kind
        self._head = head
        self._array: NDArray[Any] | None = None

    @property
    def array(self) -> NDArray[Any]:
        """The read-only array, which keeps the memory alive after `close`. ValueError if closed."""
        if self._core.closed:
            raise ValueError("the array is closed")
        if self._array is None:
            self._array = self._kind.over(self._core.view(0, self._kind.nbytes))
        return self._array

    @property
    def core(self) -> _core.Mapping:
        """The mapping of the C++ core, for `onecopy.page_cache`."""
        return self._core

    @property
    def path(self) -> str:
        """Path of the unnamed file in ``/proc``, valid while this process has it open."""
        return f"/proc/{os.getpid()}/fd/{self._core.fileno()}"

    def close(self) -> None:
        """Release the memory; it is freed with the last view. Closing twice has no effect."""
        self._array = None
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._core.closed

    def __reduce__(self) -> tuple[object, ...]:
        kind = self._kind
        return _attach, (self.path, self._core.identity, self._head, kind.name, kind.shape)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "sealed"
        return f"<onecopy.SealedArray {self.shape} {self.dtype} {state}>"


def _attach(path: str, identity: Identity, head: int, name: str, shape: tuple[int, ...]) -> SealedArray:
    """Map the array that another process sealed."""
    kind = Kind(shape, name)
    try:
        core = _core.open_mapping(path, offset=head, length=max(kind.nbytes, 1), expected=identity)
    except PermissionError:
        raise
    except OSError as error:
        raise _gone(path) from error
    return SealedArray(core, kind, head)


def _gone(path: str) -> FileNotFoundError:
    process = path.split("/")[2]
    reason = f"cannot attach to the sealed array: process {process} has ended or has closed it"
    return FileNotFoundError(errno.ENOENT, reason, path)
