"""Identify a module's code by the Python release, an installed distribution, or the contents of files.

An installed module is identified by the name and version of its distribution, and by the checksums of the installed
files, which the installer wrote to RECORD: if the same version is built again with other contents, its identity
changes. This module reads the metadata folders itself, because `importlib.metadata.packages_distributions` takes half a
second for 300 installed distributions.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES

from onecopy.errors import Error

_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep  # noqa: PTH120 - text
_INSTALLED = re.compile(r"(.*[/\\](?:site|dist)-packages)[/\\](.+)", re.S)
_MAX_BYTES = 256 << 20
_PARTS = ("bench", "core", "images", "monitor", "onnxruntime", "records", "remote")
"""The distributions of this project are onecopy-core, onecopy-images, ...; all have the same version."""
_REQUIRED = re.compile(
    rb"^Requires-Dist: onecopy([-_.](%s))?(?![\w.-])(?!.*extra *==)" % "|".join(_PARTS).encode(), re.I | re.M
)


class NoIdentity(Error):
    """A value has no identity. The message states its type and the reason."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.steps: list[str] = []  # from this value to the one that the caller gave


@functools.lru_cache(maxsize=4096)
def package_of(module: str, file: str | None) -> str | None:
    """Return the identity of a module's installed package, or None if the module belongs to the program.

    Editable installations count as part of the program, because edits do not change their version.
    """
    top = module.partition(".")[0]
    if top == "onecopy" or (top.startswith("onecopy_") and top[8:] in _PARTS):
        return f"onecopy {sys.modules['onecopy'].__version__}"
    if isinstance(file, str) and (installed := _INSTALLED.fullmatch(file)):
        return _distribution_of(*installed.groups())
    if file.startswith(_STANDARD_LIBRARY) if isinstance(file, str) else top in sys.stdlib_module_names:
        return f"Python {sys.version.split()[0]}"
    return None


@functools.lru_cache(maxsize=4096)
def compiled_code_of(file: str | None) -> str | None:
    """Return a checksum of a compiled module as its identity, or None for Python code."""
    return f"compiled {contents_of(file)}" if file is not None and is_compiled(file) else None


def is_compiled(file: str | None) -> bool:
    """Return whether a file name belongs to a compiled module."""
    return isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES))


def is_installed(file: str | None) -> bool:
    """Return whether a file is below site-packages or dist-packages."""
    return isinstance(file, str) and _INSTALLED.fullmatch(file) is not None


def version_of(file: str | None) -> str | None:
    """Return the version of the distribution that installed a file, or None for other files."""
    names = [os.path.basename(owner) for owner in _owners(file)]  # noqa: PTH119
    return ", ".join(name.rpartition(".")[0].partition("-")[2] for name in names) or None


@functools.lru_cache(maxsize=256)
def requires_onecopy(file: str) -> bool:
    """Return whether the distribution of an installed module requires onecopy or one of its parts."""
    return any(_REQUIRED.search(_read(owner, "METADATA")) for owner in _owners(file))


def _owners(file: str | None) -> list[str]:
    """Return the metadata folders of the distributions that installed a file."""
    installed = _INSTALLED.fullmatch(file) if isinstance(file, str) else None
    return _owners_of(*installed.groups())[0] if installed else []


def contents_of(path: str) -> str:
    """Return a checksum of a file, or of all files below a folder except compiled Python code.

    Raise NoIdentity if the files exceed 256 MiB, or one of them cannot be read.
    """
    from hashlib import blake2b

    found, nbytes = blake2b(digest_size=16), 0
    folders = ((folder, sorted(files)) for folder, inner, files in os.walk(path) if inner.sort() is None)
    names = [os.path.join(folder, name) for folder, files in folders for name in files]  # noqa: PTH118 - text
    for name in names or [path]:
        if name.endswith((".pyc", ".pyo")) and name != path:
            continue
        try:
            nbytes += os.stat(name).st_size  # noqa: PTH116 - text
            if nbytes > _MAX_BYTES:
                raise NoIdentity(f"code in {path!r} exceeds 256 MiB and has no distribution: install it with pip")
            with open(name, "rb") as file:  # noqa: PTH123 - text
                data = file.read()
        except OSError as error:
            raise NoIdentity(f"code in {path!r} cannot be read ({error})") from None
        found.update(f"{name.removeprefix(path)}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        found.update(data)
    return found.hexdigest()


def _distribution_of(folder: str, inner: str) -> str | None:
    """Return the identity of an installed file's distribution, or None if the distribution is editable."""
    owners, is_listed = _owners_of(folder, inner)
    if any(b'"editable": true' in _read(owner, "direct_url.json") for owner in owners):
        return None
    words = [f"{os.path.basename(owner).rpartition('.')[0]} {_checksum_of(owner)}" for owner in owners]  # noqa: PTH119
    if not is_listed:
        path = os.path.join(folder, inner if owners else inner.partition(os.sep)[0])  # noqa: PTH118 - text
        words.append(f"{inner} {contents_of(path)}")
    return ", ".join(words)


def _owners_of(folder: str, inner: str) -> tuple[list[str], bool]:
    """Return the metadata folders of the distributions that installed a file, and whether they list the file.

    If none of them lists the file (it may be generated), return the distributions with other files of its package.
    """
    candidates = _metadata_of(folder, inner.partition(os.sep)[0])
    name = f"\n{inner.replace(os.sep, '/')},sha".encode("utf-8", "surrogateescape")
    owners = [candidate for candidate in candidates if name in _record_of(candidate)]
    return owners or candidates, bool(owners)


@functools.cache
def _metadata_of(folder: str, top: str) -> list[str]:
    """Return the metadata folders of the distributions that contain a top-level module or package in a folder."""
    try:
        entries = sorted(name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info")))  # noqa: PTH208
    except OSError:
        return []
    stem, name = _normal(top.partition(".")[0]), f"\n{top}".encode("utf-8", "surrogateescape")
    for some in ([entry for entry in entries if _normal(entry.partition("-")[0]) == stem], entries):
        paths = [os.path.join(folder, entry) for entry in some]  # noqa: PTH118 - text
        if found := [path for path in paths if name + b"/" in (record := _record_of(path)) or name + b"," in record]:
            return found
    return []


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


@functools.lru_cache(maxsize=16)
def _record_of(metadata: str) -> bytes:
    """Return the lines of RECORD, each preceded by a newline. Without RECORD, return lines with module names."""
    if record := _read(metadata, "RECORD"):
        return b"\n" + record
    names = _read(metadata, "top_level.txt").split() or [os.path.basename(metadata).partition("-")[0].encode()]  # noqa: PTH119
    return b"".join(b"\n%b/\n%b.py/" % (name, name) for name in names)


@functools.cache
def _checksum_of(metadata: str) -> str:
    """Return a checksum of the installed files' checksums, which is the same in every environment."""
    from hashlib import blake2b

    lines = [line for line in _record_of(metadata).split(b"\n") if b",sha" in line and b".dist-info/" not in line]
    inside = sorted(line for line in lines if not line.startswith(b".."))  # scripts contain the path of the environment
    return blake2b(b"\n".join(inside), digest_size=16).hexdigest()


def _read(metadata: str, name: str) -> bytes:
    try:
        with open(os.path.join(metadata, name), "rb") as file:  # noqa: PTH118, PTH123 - text
            return file.read()
    except OSError:
        return b""
