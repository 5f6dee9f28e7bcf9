"""Keys of artefacts: text that identifies files, functions and values, and is the same in all processes.

A function is identified by the program's own code that it can call (`onecopy.store.function_identity`). Two functions
never share an artefact. If a function, or a function that it calls, is edited, another artefact is built.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from onecopy.files.identity import contents_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy.store.function_identity import Form, Reached


def file_key(path: str | os.PathLike[str], version: str = "") -> str:
    """Return a key for a file's current contents: text that changes when the file is modified or replaced.

    The key consists of the real path, the size, the times of the last write and of the last change, device, inode, and
    `version`. Change `version` when the code that reads the file changes; `onecopy.share` adds the identity of its
    function automatically. If the file has just been changed, the call waits about 20 ms until the clock of the file
    system has advanced, so that the next write changes the key.

    If times do not reveal every write, the key contains the SHA-256 of the contents instead, and the call reads the
    file (about 1 s per 1.5 GB). This is the case on tmpfs, while a process has the file open for writing or maps it
    writable, and for a minute after a change if writers cannot be detected (files on servers, and other users' files).

    Raises
    ------
    FileNotFoundError, IsADirectoryError, OSError
        The path does not exist, cannot be read, is a folder (pass the files in it instead), or is not a regular file.

    Examples
    --------
    >>> import onecopy as oc, tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "labels.json")
    >>> _ = path.write_text("[1, 2]")
    >>> before = oc.file_key(path, version="2")
    >>> _ = path.write_text("[3, 4]")
    >>> before == oc.file_key(path, version="2")
    False
    """
    words = [os.path.realpath(os.fsdecode(path)), contents_of(path).text]
    return ", ".join([*words, f"version {version}"] if version else words)


def name_of(function: Callable[..., Any], call: tuple[tuple[Any, ...], dict[str, Any]] | None = None) -> str:
    """Return a name for a function. The name changes with the function's code and all of the program's code it uses.

    The name includes the arguments of `call`, if given. Raise TypeError, like `digest_of`, if the function uses a value
    without a stable identity.
    """
    from onecopy.store.equivalents import Program

    inner = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    digest = ""
    if "<locals>" not in getattr(inner, "__qualname__", "<locals>"):  # its module keeps it alive anyway
        known = _known.get(id(function))
        if known is None or (call is None if known.reached is None else not known.reached.is_unchanged()):
            form = _form_of(Program(function), "the function")
            if len(_known) >= _MAX_KNOWN:
                _known.clear()
            known = _known[id(function)] = _Known(function, form.reached, form.hash.hexdigest())
        digest = known.digest if known.reached is not None or call is None else ""
    args, kwargs = call or ((), {})
    if not digest:  # the function may reach its arguments in other ways
        whole = function if call is None else functools.partial(function, *args, **kwargs)
        digest = digest_of(Program(whole), "the function")
    elif call is not None:
        digest = digest_of([digest, args, kwargs] if kwargs else (digest, *args), "the arguments of the function")
    return f"{getattr(inner, '__qualname__', type(inner).__qualname__)} {digest}"


class _Known(NamedTuple):
    function: Callable[..., Any]  # kept, so that no other object gets its `id`
    reached: Reached | None  # what the digest depends on; None if a part may change unseen
    digest: str


_known: dict[int, _Known] = {}
_MAX_KNOWN = 1000


def digest_of(value: Any, where: str) -> str:
    """Return 32 hexadecimal digits that identify a value in all processes. `where` describes the value in errors.

    If the value, or another value to which it refers, has no stable identity, raise a TypeError that names it.
    """
    return _form_of(value, where).hash.hexdigest()


def _form_of(value: Any, where: str) -> Form:
    from onecopy.store.function_identity import Form
    from onecopy.store.packages import NoIdentity

    form = Form()
    try:
        form.add(value)
        form.add_names_of_modules()
    except NoIdentity as error:
        raise TypeError(
            f"a key needs values with a stable identity, but {' of '.join([*error.steps, where])} cannot have one: "
            f"{error}; pass the function the data's source (functools.partial(load, path)) or share the data itself"
        ) from None
    except RecursionError:
        raise TypeError(f"a key needs values with a stable identity, but the nesting of {where} is too deep") from None
    return form


def text_of(key: str) -> str:
    """Return the key that a caller passed. Raise TypeError if it is not text."""
    if not isinstance(key, str):
        raise TypeError(f"key must be a string, not {key!r}: pass key={str(key)!r}")
    return key
