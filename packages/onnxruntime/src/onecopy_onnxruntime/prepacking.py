"""Prepacked weights in the store: one artefact per combination of model, machine and options, used to create sessions.

ONNX Runtime can save an optimized model with prepacked weights, and maps them when it opens that model. A child process
saves the model, so that all its heap memory is freed afterwards. The artefact is a single file: the data as ONNX
Runtime wrote it, the model that refers to the data, and facts about both.

    data | model (protobuf) | facts (JSON) | their lengths and their CRC-32: 8 bytes each, little-endian | "oc-ort-1"

The key contains the digest of the model and its external data, the version of ONNX Runtime, the CPU and the options.
The digest is stored under `onecopy.file_key`, so that a file has to be read only once to compute it. If a model cannot
be prepacked, the artefact contains the reason, and prepacking is not tried again until the artefact is pruned. If there
is too little memory or disk space, no artefact is written.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import platform
import re
import secrets
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from hashlib import file_digest, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import onnxruntime

from onecopy import _core
from onecopy._core import PREPACKED_END
from onecopy.errors import FormatError, Kind
from onecopy.store import Store, file_key, reopened, report_progress
from onecopy_onnxruntime import options as session_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from onecopy.store import Artefact

_TRAILER = 24 + len(PREPACKED_END)
_MIN_IN_DATA = "1024"
"""Minimum size in bytes of a weight that is written to the data; smaller ones stay in the model."""

_background: list[subprocess.Popen[bytes]] = []
"""Children that prepack in the background, listed so that they are reaped."""


@dataclass(frozen=True, slots=True)
class Prepacked:
    """The contents of an artefact."""

    path: Path
    model: bytes
    """The serialized model; empty if prepacking failed."""
    prepacked: int
    """Number of weights that operator kernels have prepacked."""
    failed: str
    """Why prepacking failed, or "" if it succeeded."""

    @classmethod
    def read(cls, path: Path) -> Prepacked:
        """Read the model and facts of an artefact. Raise FormatError if it is damaged."""
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - _TRAILER, 0))
            trailer = file.read()
            *lengths, checksum = (int.from_bytes(trailer[at : at + 8], "little") for at in (0, 8, 16))
            if trailer[24:] != PREPACKED_END or sum(lengths) + _TRAILER > size:
                raise FormatError("not a file of prepacked weights: bad trailer", Kind.NOT_THIS_FORMAT, path=str(path))
            file.seek(size - _TRAILER - sum(lengths))
            model, facts = file.read(lengths[0]), file.read(lengths[1])
        if crc32(facts, crc32(model)) != checksum:
            raise FormatError("the checksum of the model does not match", Kind.INCONSISTENT, path=str(path))
        try:
            found = json.loads(facts)
            return cls(path, model, int(found["prepacked"]), str(found["failed"]))
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"the file is damaged: its facts cannot be read: {error!r}", path=str(path)) from None


@dataclass(frozen=True)
class Recipe:
    """The model to prepack and the options, passed to the child as JSON."""

    path: str
    files: tuple[str, ...]
    """Paths of the model and of its external data files."""
    options: Mapping[str, str]
    """Entries that `options.deciding` returned."""
    disabled_optimizers: tuple[str, ...]
    store: Store
    """The store of the artefact."""

    def key(self, digest: str) -> str:
        """Return the key of the artefact for files with this digest."""
        entries = dict(self.options) | {"without": " ".join(self.disabled_optimizers)}
        text = "\n".join(f"{name}={entries[name]}" for name in sorted(entries))
        options = sha256(text.encode()).hexdigest()[:16]
        words = f"{platform.machine()} {_cpu_features()}, options {options}"
        return f"packed weights of {digest}, onnxruntime {onnxruntime.__version__}, {words}, layout 4"

    def digest(self) -> str | None:
        """Return the digest of the files, or None if the store does not contain it."""
        found = self.store.find(self._digest_key())
        return None if found is None else found.read_bytes().decode()

    def digest_now(self) -> str:
        """Return the digest of the files, computing it if the store does not contain it."""
        return self.store.get_or_build(self._digest_key(), self._write_digest, source=self.path).read_bytes().decode()

    def find(self) -> Prepacked | None:
        """Return the artefact, or None if it is missing or cannot be read."""
        digest = self.digest()
        found = None if digest is None else self.store.find(self.key(digest))
        if found is None:
            return None
        with contextlib.suppress(FormatError, OSError):  # damaged, or pruned meanwhile
            return Prepacked.read(found.path)
        return None

    def built(self, store: Store, make: Callable[[Recipe, Path], None]) -> Artefact:
        """Return the artefact, calling `make` if it is not in the store. Raise OSError if a file changes."""
        key = self.key(self.digest_now())

        def build(path: Path) -> None:
            make(self, path)
            digest = self.digest()
            if digest is None or self.key(digest) != key:
                raise OSError(errno.ESTALE, "the model changed while its weights were prepacked", self.path)

        return store.get_or_build(key, build, source=self.path)

    def is_being_built(self) -> bool:
        """Return whether a process is prepacking the model or computing its digest."""
        digest = self.digest()
        key = self._digest_key() if digest is None else self.key(digest)
        return any(artefact.state == "building" and artefact.key == key for artefact in self.store.ls())

    def json(self) -> str:
        """Return the recipe as JSON."""
        store = str(self.store.folder), self.store.trust
        return json.dumps([self.path, self.files, dict(self.options), self.disabled_optimizers, *store])

    @classmethod
    def of_json(cls, text: str) -> Recipe:
        """Return the recipe described by JSON text."""
        path, files, options, optimizers, folder, trust = json.loads(text)
        return cls(path, tuple(files), options, tuple(optimizers), reopened(folder, trust, False, {"on_wait": None}))

    def _digest_key(self) -> str:
        return "sha256 of " + "; ".join(file_key(file) for file in self.files)

    def _write_digest(self, path: Path) -> None:
        digest = sha256()
        folder = Path(self.path).parent
        for file in self.files:
            digest.update(f"{os.path.relpath(file, folder)}\n{os.stat(file).st_size}\n".encode())  # noqa: PTH116 - text
            with open(file, "rb", buffering=0) as contents:  # noqa: PTH123
                file_digest(contents, lambda: digest)
        hidden = path.with_name(_hidden_name(path))
        with _temporary(path, hidden):
            hidden.write_text(f"sha256 {digest.hexdigest()}")
            hidden.replace(path)


def prepack(recipe: Recipe) -> Prepacked:
    """Return the prepacked weights; prepack them in a child process, or wait for another process that is doing so.

    Raise OSError on failure.
    """
    return Prepacked.read(recipe.built(recipe.store, _in_child).path)


def start_in_background(recipe: Recipe) -> int:
    """Start a child that prepacks and may outlive this process. Return its PID, or raise OSError."""
    _background[:] = [child for child in _background if child.poll() is None]
    # Ctrl-C does not end a child in a separate process session. Later ONNX Runtime sessions use the child's result.
    child = _child("background", recipe.json(), stderr=subprocess.DEVNULL, start_new_session=True)
    _background.append(child)
    return child.pid


def write(recipe: Recipe, path: Path) -> None:
    """Prepack in this process and write the artefact to `path` atomically."""
    hidden = path.with_name(_hidden_name(path))
    saved = path.with_name(_hidden_name(path))
    with _temporary(path, hidden, saved), hidden.open("wb") as data, saved.open("wb") as message:
        # `Store.prune` removes hidden files without a lock, because their writer has ended.
        for file in (data, message):
            fcntl.flock(file, fcntl.LOCK_EX)
        facts: dict[str, Any] = {"prepacked": 0, "failed": ""}
        model = b""
        try:
            model = _save_or_raise(recipe, hidden, saved)
            facts["prepacked"] = model.count(b"prepacked_")
        except OSError:  # a temporary condition, not a property of the model
            raise
        except Exception as error:  # the only common class of the errors of ONNX Runtime
            facts["failed"] = str(error).strip() or repr(error)
        if not hidden.exists():  # ONNX Runtime removes an empty file of data
            facts["failed"], model, hidden = "all weights are smaller than 1,024 bytes", b"", saved
        out = message if hidden == saved else data
        if facts["failed"]:
            out.truncate(0)
        # The names have equal lengths, so that one can replace the other in the model.
        model = model.replace(hidden.name.encode(), path.name.encode())
        end = json.dumps(facts).encode()
        out.seek(0, os.SEEK_END)
        numbers = (len(model), len(end), crc32(end, crc32(model)))
        out.write(model + end + b"".join(number.to_bytes(8, "little") for number in numbers) + PREPACKED_END)
        out.flush()
        hidden.replace(path)


@contextlib.contextmanager
def _temporary(path: Path, *hidden: Path) -> Iterator[None]:
    """Remove hidden files at the end of the block. Add the name of `path` to any OSError without a file name."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise
    finally:
        for left in hidden:
            left.unlink(missing_ok=True)


def _save_or_raise(recipe: Recipe, data: Path, saved: Path) -> bytes:
    """Call `_save`. Raise OSError for temporary failures, and other exceptions if saving the model is impossible."""
    # Errors of ONNX Runtime do not distinguish a full disk or a memory limit from a model that it cannot save. After
    # an error, space is reserved, which raises OSError if the disk is full, and saving is repeated once.
    try:
        return _save(recipe, data, saved)
    except OSError:
        raise
    except Exception as error:  # as in `write`
        if isinstance(error, MemoryError) or re.search(r"bad.?alloc|out of memory|allocate memory", str(error), re.I):
            raise OSError(errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}: {error}", recipe.path) from error
        first = error
    nbytes = 2 * sum(os.stat(file).st_size for file in recipe.files) + (1 << 20)  # noqa: PTH116 - text
    with data.open("r+b") as room:
        os.posix_fallocate(room.fileno(), 0, nbytes)  # ONNX Runtime truncates the file
    try:
        return _save(recipe, data, saved)
    except Exception as second:
        if type(second) is type(first) and not isinstance(second, OSError):
            raise
        raise OSError(errno.EAGAIN, f"{first}; the second attempt failed too: {second}", recipe.path) from second


def _save(recipe: Recipe, data: Path, saved: Path) -> bytes:
    """Write the optimized model and its data with ONNX Runtime, and return the model."""
    options = session_options.with_deciding(recipe.options)
    options.log_severity_level = 3  # suppresses the warning that the model is for this machine only
    options.optimized_model_filepath = str(saved)
    for name, value in (
        ("session.optimized_model_external_initializers_file_name", data.name),
        ("session.optimized_model_external_initializers_min_size_in_bytes", _MIN_IN_DATA),
        ("session.save_external_prepacked_constant_initializers", "1"),
        ("session.save_model_format", "ONNX"),
    ):
        options.add_session_config_entry(name, value)
    given = {"disabled_optimizers": list(recipe.disabled_optimizers)} if recipe.disabled_optimizers else {}
    session = onnxruntime.InferenceSession(
        recipe.path, options, providers=["CPUExecutionProvider"], enable_fallback=0, **given
    )
    # ONNX Runtime does not save the description of the graph of an .ort model. Parsers merge fields that occur twice.
    return saved.read_bytes() + _field(7, _field(10, session.get_modelmeta().graph_description.encode()))


def _field(number: int, value: bytes) -> bytes:
    """Return a field of a protobuf message with a number below 16, or b"" for an empty value."""
    length, rest = b"", len(value)
    while rest > 127:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + value if value else b""


def _in_child(recipe: Recipe, path: Path) -> None:
    """Prepack in a child that ends with this process, and report the progress to waiting processes."""
    before = {file.name for file in path.parent.glob(".onecopy-*")}
    with _child(str(os.getpid()), recipe.json(), str(path), stderr=subprocess.PIPE) as child:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    _, text = child.communicate(timeout=0.1)
                    break
                with contextlib.suppress(OSError):  # a file was renamed meanwhile
                    written = [file for file in path.parent.glob(".onecopy-*") if file.name not in before]
                    report_progress(sum(file.stat().st_size for file in written))
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        lines = text.decode(errors="replace").strip().splitlines()
        reason = lines[-1] if lines else "it was killed"
        raise ChildProcessError(f"process {child.pid} failed to prepack {recipe.path}: {reason}")


def _child(*arguments: str, **settings: Any) -> subprocess.Popen[bytes]:
    """Start `main` in a new interpreter."""
    nowhere, environment = subprocess.DEVNULL, {**os.environ, "ONECOPY_AUTO": "0"}  # sessions in it must not share
    return subprocess.Popen([*_command(), *arguments], stdin=nowhere, stdout=nowhere, env=environment, **settings)


def _command() -> list[str]:
    if not sys.executable:
        raise OSError("cannot start a Python interpreter: sys.executable is empty")
    program = "import sys; from onecopy_onnxruntime.prepacking import main; main(*sys.argv[1:])"
    return [sys.executable, "-c", program]


def _hidden_name(path: Path) -> str:
    """Return a name that the store recognizes as an unfinished file, and that is as long as the artefact's name."""
    prefix = ".onecopy-"
    return prefix + secrets.token_hex(len(path.name))[: len(path.name) - len(prefix)]


@lru_cache(maxsize=1)
def _cpu_features() -> str:
    """Return a hash of the CPU's model and features, which determine how ONNX Runtime prepacks."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor()
    first = text.split("\n\n", 1)[0]
    relevant = ("flags", "Features", "vendor_id", "cpu family", "model\t", "CPU implementer", "CPU part")
    lines = sorted(line for line in first.splitlines() if line.startswith(relevant))
    return sha256("\n".join(lines).encode()).hexdigest()[:16]


def main(caller: str, text: str, *path: str) -> None:
    """Run the child that prepacks, in the background or for a waiting parent with the process ID `caller`."""
    recipe = Recipe.of_json(text)
    if caller != "background":
        if _core.end_with_parent(int(caller)):
            write(recipe, Path(path[0]))
        return
    os.nice(10)  # other processes serve requests meanwhile
    with contextlib.suppress(TimeoutError):  # another process is building it
        recipe.built(recipe.store.with_options(timeout=0), write)
