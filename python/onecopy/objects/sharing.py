"""`share_object`: build an object once per machine, and load it in every process."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from onecopy.objects import layout, loading
from onecopy.objects.layout import version_of
from onecopy.store import Store, keys
from onecopy.store.fork import free_unused_memory

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from onecopy.store import Artefact

__all__ = ["share_object"]

T = TypeVar("T")


def share_object(
    factory: Callable[[], T],
    key: str,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    private: bool = False,
    report: Callable[[loading.LoadReport], object] | None = None,
) -> T:
    """Return the object that a function makes, built once per machine, with arrays that all processes share.

    The first process of the machine that calls this function calls `factory` and writes the object to the store
    (`save_object`); it and all others, in this run and later ones, load it from there (`load_object`), without reading
    the arrays. The object is unpickled from the store, a folder that belongs to this user alone, after its owner and
    the checksums of the pickle were checked.

    Parameters
    ----------
    factory
        A function without arguments that returns the object. It is part of the identity, with everything of the
        program's own code that it reaches, as for `onecopy.cached`. So are the version of Python, and the versions of
        the packages whose classes the object has.
    key
        Text that identifies what the object is made from: see `onecopy.file_key`.
    store
        A `onecopy.Store`, or a folder; None: the default store on disk.
    source
        The file that the object is made from, for `onecopy store ls` and `prune`; checked for changes after the build.
    private, report
        As for `load_object`.

    Raises
    ------
    TypeError
        The key is not text; or the function reaches a value without a stable identity, which the message names.
    OSError
        ENOSPC: there is not enough space. Others: the folder cannot be used.
    TimeoutError, FileChanged, ChildProcessError
        See `onecopy.Store.get_or_build`.
    Exception
        What `factory` raises, or the classes of the object when they are pickled or unpickled.

    Examples
    --------
    >>> import numpy as np, onecopy as oc, tempfile
    >>> store = oc.Store(tempfile.mkdtemp())
    >>> squares = oc.share_object(lambda: {"squares": np.arange(1000) ** 2}, "squares up to 1000", store=store)
    >>> squares["squares"][7], squares["squares"].flags.writeable
    (np.int64(49), False)
    """
    from onecopy.objects.saving import python_version, save_object

    opened = Store.of(store)

    def find(name: str) -> Artefact:
        return opened.get_or_build(
            name, lambda path: save_object(path, factory(), durable=opened.durable), source=source
        )

    name = f"{keys.text_of(key)}, object by {keys.name_of(factory)}, Python {python_version()}"
    found = find(name)
    if versions := _other_versions(found):
        found = find(f"{name}, {versions}")
    if found.built:
        free_unused_memory()
    value: T = loading.loaded(found, private=private, report=report)
    return value


def _other_versions(found: Artefact) -> str:
    """Return the versions of the packages of an object if any is another one now; empty if all are the same."""
    from onecopy.arrays import open as open_file

    with open_file(found) as file:
        saved = layout.about(file).packages
    now = {name: _version_of(name) for name in saved}
    return ", ".join(f"{name} {version}" for name, version in now.items()) if now != saved else ""


def _version_of(package: str) -> str | None:
    """Return the version of a package, which unpickling imports as well; None if it is missing here."""
    with suppress(ImportError):  # unpickling raises it
        import_module(package)
    return version_of(package)
