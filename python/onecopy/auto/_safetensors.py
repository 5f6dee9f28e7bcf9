"""`safetensors.safe_open` returns arrays of numpy on a mapping; functions that save replace files that are mapped.

``framework="pt"``, and so `safetensors.torch.load_file`, maps by itself. `safetensors.numpy.load_file` calls
`safe_open`.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onecopy.auto import overwriting
from onecopy.auto.hooks import replace
from onecopy.auto.mapped import File
from onecopy.runs.call_log import note

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from onecopy.arrays import ArrayFile

SAFE_OPEN = "safetensors.safe_open"


def apply(module: ModuleType) -> None:
    """Replace `safe_open` in `safetensors`, or in one of its modules, and the function of the module that saves."""
    if module.__name__ == "safetensors":
        if not hasattr(module.safe_open, "replaced_by_onecopy"):
            setattr(module, "safe_open", _replaced(module.safe_open))  # noqa: B010 - a module has no type
        return
    import safetensors

    replace(module, "save_file", _save_file)
    setattr(module, "safe_open", safetensors.safe_open)  # noqa: B010


def _replaced(original: type) -> type:
    """Return a class that opens files as `original` does, or maps them, and of which both results are instances."""

    class Opening(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return _opened(original, args, kwargs)

        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (original, _Mapped))

    facts = {"__doc__": original.__doc__, "__module__": original.__module__, "__wrapped__": original}
    return Opening(original.__name__, (), {**facts, "replaced_by_onecopy": True})


def _opened(original: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    filename, framework = (*args, *(kwargs.get(name) for name in ("filename", "framework")[len(args) :]))[:2]
    file = mapped = None
    if isinstance(filename, (str, os.PathLike)):
        with suppress(OSError):  # safetensors raises it
            file = File(filename)
    if file is not None and framework in ("np", "numpy") and kwargs.get("backend", "mmap") == "mmap":
        mapped = _mapped(file)
    try:
        opened = original(*args, **kwargs)
    except BaseException:
        if mapped is not None:
            mapped.close()
        raise
    if file is not None:
        file.protect()
    if mapped is None or mapped.changed():  # another file than the one that safetensors has opened
        return opened
    return _Mapped(opened, mapped)


def _mapped(file: File) -> ArrayFile | None:
    from onecopy.arrays import open_arrays

    if file.reason:
        note(SAFE_OPEN, file.path, copied=file.nbytes, reason=file.reason)
        return None
    try:
        return open_arrays(file.path, private=True)
    except Exception:  # any: safetensors reads the file, or raises its own error
        return None


class _Mapped:
    """A file that safetensors has opened, of which arrays are returned on a mapping where nothing else differs.

    safetensors returns an array of its own at each call. So bytes are mapped once, and copied if they are requested
    again.
    """

    def __init__(self, opened: Any, mapped: ArrayFile) -> None:
        self._opened, self._arrays = opened, mapped
        self._given: dict[str, tuple[int, int]] = {}
        """By name: the first and last address of what was returned."""
        self._lock = threading.Lock()
        self._shared = 0
        self._copied: dict[str, int] = {}
        """Bytes by reason."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._opened, name)

    def __enter__(self) -> _Mapped:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.__exit__(*error)
        self.report()
        self._arrays.close()

    def __del__(self) -> None:
        self.report()

    def get_tensor(self, name: str) -> Any:
        """Return an array, mapped if possible."""
        whole = self._array(name)
        return self._opened.get_tensor(name) if whole is None or not self.is_new(name, whole) else whole

    def get_tensors(self) -> dict[str, Any]:
        """Return all arrays, mapped where possible."""
        return {name: self.get_tensor(name) for name in self._opened.offset_keys()}

    def get_slice(self, name: str) -> Any:
        """Return an object that is indexed to get a part, mapped if possible."""
        original, whole = self._opened.get_slice(name), self._array(name)
        return original if whole is None else _Slice(self, name, original, whole)

    def report(self) -> None:
        """Report what was returned since the last report."""
        for reason, nbytes in self._copied.items():
            note(SAFE_OPEN, self._arrays.path, copied=nbytes, reason=reason)
        note(SAFE_OPEN, self._arrays.path, shared=self._shared)
        self._shared, self._copied = 0, {}

    def _array(self, name: str) -> Any:
        """Return an array on the mapping; None if there is no such array, or safetensors returns another one."""
        from safetensors.numpy import _TYPES

        if self._arrays.closed or name not in self._arrays:
            return None
        entry = self._arrays.entry(name)
        if entry.dtype not in _TYPES:
            return self.copy("has a dtype that numpy does not have", entry.nbytes)
        array = self._arrays[name]
        return array if array.flags.aligned else self.copy("not aligned in the file", entry.nbytes)

    def is_new(self, name: str, array: Any) -> bool:
        """Return whether no bytes of an array were returned before; from now on they were."""
        begin = array.ctypes.data
        end = begin + array.nbytes
        with self._lock:
            first, last = self._given.get(name, (begin, begin))
            is_new = bool(begin >= last or end <= first)
            if is_new:
                self._given[name] = min(first, begin), max(last, end)
                self._shared += array.nbytes
        if not is_new:
            self.copy("requested before", array.nbytes)
        return is_new

    def copy(self, reason: str, nbytes: int) -> None:
        """Count bytes that safetensors copies."""
        self._copied[reason] = self._copied.get(reason, 0) + nbytes


class _Slice:
    """What `get_slice` of safetensors returns, of which parts that are contiguous are on the mapping."""

    def __init__(self, file: _Mapped, name: str, original: Any, whole: Any) -> None:
        self._file, self._name, self._original, self._whole = file, name, original, whole

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)

    def __getitem__(self, index: Any) -> Any:
        part = _contiguous_part(self._whole, index)
        if part is not None and self._file.is_new(self._name, part):
            return part
        copied = self._original[index]
        if part is None:
            self._file.copy("parts that are not contiguous", copied.nbytes)
        return copied


def _contiguous_part(whole: Any, index: Any) -> Any:
    """Return a part as a view; None if it is not contiguous, or the index is not of plain integers and slices."""
    indices = index if isinstance(index, tuple) else (index,)
    if len(indices) > whole.ndim or not all(map(_is_plain, indices, whole.shape)):
        return None
    part = whole[(*indices, ...)]  # with the ellipsis a single element is a view too
    return part if part.flags.c_contiguous and part.size else None


def _is_plain(index: Any, extent: int) -> bool:
    if type(index) is int:
        return -extent <= index < extent
    if type(index) is not slice or index.step not in (None, 1):
        return False
    start, stop = (0 if index.start is None else index.start), (extent if index.stop is None else index.stop)
    return type(start) is int and type(stop) is int and 0 <= start <= stop <= extent


def _save_file(original: Callable[..., Any]) -> Callable[..., Any]:
    def save_file(*args: Any, **kwargs: Any) -> Any:
        filename = args[1] if len(args) > 1 else kwargs.get("filename")
        if isinstance(filename, (str, os.PathLike)):
            overwriting.before_write(filename, whole=True)
        return original(*args, **kwargs)

    return save_file
