"""Hugging Face models whose weights stay mapped, also in another dtype than the file's.

    model = oc.transformers.from_pretrained(AutoModelForCausalLM, "folder/of/the/model", dtype=torch.bfloat16)
    print(oc.explain(model))

transformers maps safetensors files by itself, and keeps them mapped, as long as the weights are wanted as they lie in
the file. A cast makes a private copy in every process; here it is made once per host, in the store, and whatever
transformers casts while it builds the model comes from there.

**When not to use it.** Where the model goes to a GPU: `from_pretrained` itself reads as fast.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onecopy import arrays, page_cache
from onecopy.arrays.shards import files_of_index
from onecopy.files import Mapping
from onecopy.integrations.torch._cast import cast_once, dtype_of, needs_cast
from onecopy.integrations.torch._load import is_host, load
from onecopy.memory import proc
from onecopy.text import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from onecopy.page_cache import WarmJob
    from onecopy.store import Store

__all__ = ["from_pretrained"]


def from_pretrained(
    model_class: Any,
    folder: str | os.PathLike[str],
    *,
    dtype: Any = "auto",
    store: Store | str | os.PathLike[str] | None = None,
    warming: Callable[[WarmJob], object] | None = None,
    max_bytes: int | str | None = None,
    **given: Any,
) -> Any:
    """Make a model from a folder of safetensors files, its weights mapped.

    The weights are those of ``model_class.from_pretrained(folder, dtype=dtype, **given)``, bit for bit: transformers
    builds the model, decides which weights are cast (not, for example, those that an architecture keeps in float32),
    and where it casts one, is given the same weight from a file that holds the cast.

    Parameters
    ----------
    model_class
        What has ``from_pretrained``: ``AutoModel``, ``LlamaForCausalLM``, ...
    folder
        Of a model that was saved or downloaded: ``config.json``, ``model.safetensors`` or its shards.
    dtype
        Of floating-point weights, a ``torch.dtype`` or its name; "auto": what ``config.json`` says, else as they are in
        the file.
    store
        Where casts are kept, one file for each file of weights: a `onecopy.Store` or a folder; None: the default folder
        on disk.
    warming, max_bytes
        Bring the files into memory, at most so many bytes, while transformers builds the model: called with the
        `WarmJob` before that begins.
    **given
        What else ``from_pretrained`` takes, ``subfolder`` and ``variant`` among it.

    Returns
    -------
    The model. What of it is not mapped, and why, tells `onecopy.explain`; weights that transformers converts or fuses
    are copies. Where none is mapped, a UserWarning says so.

    Raises
    ------
    FileNotFoundError
        The folder has no safetensors files, or not all that its index names.
    FormatError
        One of them is damaged.
    OSError
        What transformers raises; the store cannot be used, or has no room.
    TypeError
        `dtype` is none of torch's, nor the name of one.

    Notes
    -----
    transformers loads in one thread meanwhile: ``HF_DEACTIVATE_ASYNC_LOAD`` is set in the environment until it is done.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM  # doctest: +SKIP
    >>> model = oc.transformers.from_pretrained(AutoModelForCausalLM, "llama", dtype=torch.float16)  # doctest: +SKIP

    >>> jobs = []  # doctest: +SKIP
    >>> model = oc.transformers.from_pretrained(AutoModel, "llama", warming=jobs.append)  # doctest: +SKIP
    >>> jobs[0].wait()  # doctest: +SKIP
    """
    dtype = given.pop("torch_dtype", dtype) if dtype == "auto" else dtype
    if isinstance(dtype, str) and dtype != "auto":
        dtype = dtype_of(dtype)
    place = Path(folder, given.get("subfolder") or "")
    files = _files_in(place, given.get("variant"))
    wanted = _type_of(dtype, place)
    for file in files:
        arrays.open_arrays(file).close()  # what is damaged is an error of ours, not of another parser
    casts = {file: cast_once(file, wanted, store) for file in files if wanted is not None and needs_cast(file, wanted)}
    if warming is not None:
        warming(_warm([casts.get(file, file) for file in files], max_bytes))
    with _given_casts(casts, wanted):
        model = model_class.from_pretrained(os.fspath(folder), dtype=dtype, **given)
    _warn_of_copies(model[0] if isinstance(model, tuple) else model)  # with output_loading_info
    return model


def _files_in(place: Path, variant: str | None) -> list[Path]:
    """Return the files of weights that transformers reads: others may lie beside them (consolidated.safetensors)."""
    suffix = f".{variant}" if variant else ""
    one, index = place / f"model{suffix}.safetensors", place / f"model.safetensors.index{suffix}.json"
    if one.exists():
        return [one]
    if index.exists():
        return sorted(map(Path, files_of_index(index)))
    files = sorted(place.glob(f"*{suffix}.safetensors"))
    if not files:
        download = "a model of the hub is downloaded first (huggingface_hub.snapshot_download gives a folder)"
        what = f"no *{suffix}.safetensors files" if place.is_dir() else f"no such folder; {download}"
        raise FileNotFoundError(errno.ENOENT, what, os.fspath(place))
    return files


def _warm(files: Iterable[Path], max_bytes: int | str | None) -> WarmJob:
    """Begin to bring files into memory, one after the other, as transformers takes them."""
    portions = tuple((Mapping(file).core, None, None) for file in files)
    return page_cache.warm(page_cache.Selection(portions), max_bytes=max_bytes, wait=False)


def _type_of(dtype: Any, place: Path) -> Any:
    """Return the type that transformers will cast floating-point weights to; None: as they are in the file."""
    if isinstance(dtype, dict):  # by module: transformers takes the entry of the whole model
        dtype = dtype.get("")
    if dtype not in (None, "auto"):
        return dtype_of(dtype)
    try:
        config = json.loads((place / "config.json").read_text())
        named = config.get("dtype") or config.get("torch_dtype")
        return dtype_of(named if isinstance(named, str) else None)
    except (OSError, ValueError, AttributeError, TypeError):
        return None  # transformers says what is wrong with it


_alone = threading.RLock()
_ASYNC = "HF_DEACTIVATE_ASYNC_LOAD"


@contextlib.contextmanager
def _given_casts(casts: dict[Path, Path], dtype: Any) -> Iterator[None]:
    """While it runs, a cast of a weight on the mapping of one of these files gives the weight of its other file.

    Who casts, which weights, and to what, stays transformers' decision: its calls of ``Tensor.to`` are answered. A cast
    that is not recognised is made as always, and private.
    """
    if not casts:
        yield
        return
    with _alone:
        before = os.environ.get(_ASYNC)
        os.environ[_ASYNC] = "1"  # a mode of torch is one thread's
        try:
            with _mode(casts, dtype):
                yield
        finally:
            os.environ.pop(_ASYNC)
            if before is not None:
                os.environ[_ASYNC] = before


def _mode(casts: dict[Path, Path], dtype: Any) -> Any:
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    class Casts(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # torch may be missing where this is checked
        def __init__(self) -> None:
            super().__init__()
            self._known = _KnownCasts(casts)

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is Tensor.to and len(args) == 1 and kwargs.keys() <= {"device", "dtype"}:
                (tensor,) = args
                asked = kwargs.get("dtype") == dtype != tensor.dtype and tensor.is_floating_point()
                if asked and tensor.device.type == "cpu" and is_host(kwargs.get("device")):
                    found = self._known.of(tensor)
                    if found is not None:
                        return found
            return function(*args, **kwargs)

    return Casts()


class _KnownCasts:
    """Casts by the address of what they were made of."""

    def __init__(self, casts: dict[Path, Path]) -> None:
        self._weights: dict[str, dict[int, Any]] = {}
        """By the real path of a file: the cast weights, by the offset of the uncast ones."""
        for file, cast in casts.items():
            tensors = load(cast)
            with arrays.open_arrays(file) as source:
                self._weights[os.path.realpath(file)] = {
                    source.entry(name).offset: tensors[name] for name in source if source.entry(name).nbytes
                }
        self._held: list[tuple[proc.Region, Any]] = []
        """Where those files are mapped. A tensor of each, which keeps it so: the addresses cannot become others'."""

    def of(self, tensor: Any) -> Any:
        """Return the cast of a weight; None: not known."""
        at = tensor.data_ptr()
        region = next((region for region, _ in self._held if region.start <= at < region.end), None)
        if region is None:
            region = next((one for one in self._regions() if one.start <= at < one.end), None)
            if region is None or region.path not in self._weights:
                return None
            self._held.append((region, tensor))
        found = self._weights[region.path].get(region.offset + at - region.start)
        fits = found is not None and found.shape == tensor.shape and tensor.is_contiguous()
        return found if fits else None

    def _regions(self) -> list[proc.Region]:
        try:
            return proc.maps(os.getpid())
        except OSError:  # no /proc: every cast is private
            return []


def _warn_of_copies(model: Any) -> None:
    """Warn where no weight of a model on the host is on pages of a file."""
    addresses = {
        one.data_ptr(): one.numel() * one.element_size() for one in model.parameters() if one.device.type == "cpu"
    }
    total = sum(addresses.values())
    try:
        of_files = [one for one in proc.maps(os.getpid()) if one.inode and not one.path.startswith("/dev/zero")]
    except OSError:
        return
    if total >= 1 << 20 and not any(one.start <= at < one.end for one in of_files for at in addresses):
        warnings.warn(
            f"all {size(total)} of the weights are private memory of this process: transformers converted them, or "
            "read them without mapping the files; print(onecopy.explain(model)) lists them",
            UserWarning,
            stacklevel=3,
        )
