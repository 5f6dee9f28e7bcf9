"""Hugging Face models whose weights stay mapped, even if their dtype differs from the dtype in the file.

    model = oc.transformers.from_pretrained(AutoModelForCausalLM, "folder/of/the/model", dtype=torch.bfloat16)
    print(oc.explain(model))

transformers maps safetensors files and uses the weights in the mapping if their dtype does not change. A cast creates a
private copy in every process. This module casts weights once per machine, into a file in the store. While transformers
builds the model, its casts return tensors in that file's mapping.

**When not to use it.** For models on a GPU, transformers' own `from_pretrained` is equally fast.
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

from onecopy import arrays
from onecopy.base.text import size
from onecopy.files import page_cache
from onecopy.files.companions import names_of_index, paths_of
from onecopy.files.mapping import Mapping
from onecopy.frameworks.torch._load import cast_once, dtype_of, file_needs_cast, is_cpu, load, needs_cast
from onecopy.memory.proc import Regions
from onecopy.store.location import resolve, url_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onecopy.files.page_cache import WarmJob
    from onecopy.memory import proc
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
    """Return a model with mapped weights from a folder of safetensors files or torch checkpoints.

    The weights equal those of ``model_class.from_pretrained(folder, dtype=dtype, **given)`` bit for bit: transformers
    builds the model and decides which weights are cast (some architectures keep weights in float32). Its casts return
    tensors in the mapping of a file with the cast weights.

    Parameters
    ----------
    model_class
        A class with ``from_pretrained``: ``AutoModel``, ``LlamaForCausalLM``, ...
    folder
        Folder of a saved or downloaded model: ``config.json``, ``model.safetensors`` or its shards; without these,
        ``pytorch_model.bin`` or its shards, which transformers unpickles.
    dtype
        Dtype of floating-point weights, a ``torch.dtype`` or its name; "auto": the dtype in ``config.json``, else the
        dtypes of the file.
    store
        A `onecopy.Store` or a folder for the cast weights, one file per weight file. None means the default folder on
        disk.
    warming, max_bytes
        A function that is called with a `WarmJob`, which reads at most `max_bytes` of the files into memory while
        transformers builds the model. With None, the files are not prefetched.
    **given
        Other arguments of ``from_pretrained``, including ``subfolder`` and ``variant``.

    Returns
    -------
    object
        The model. Weights that transformers converts or fuses are copied; `onecopy.explain` lists them. If no weight is
        mapped, a UserWarning is issued.

    Raises
    ------
    FileNotFoundError
        The folder contains none of the files listed above, or lacks files that its index names.
    FormatError
        A file is damaged.
    OSError
        transformers raised an error, the store is not writable, or its disk is full.
    TypeError
        `dtype` is neither a torch dtype nor the name of one, or the class and the folder are swapped.

    Notes
    -----
    Until the model is built, ``HF_DEACTIVATE_ASYNC_LOAD`` is set in the environment, and transformers loads in one
    thread.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM  # doctest: +SKIP
    >>> model = oc.transformers.from_pretrained(AutoModelForCausalLM, "llama", dtype=torch.float16)  # doctest: +SKIP

    >>> jobs = []  # doctest: +SKIP
    >>> model = oc.transformers.from_pretrained(AutoModel, "llama", warming=jobs.append)  # doctest: +SKIP
    >>> jobs[0].wait()  # doctest: +SKIP
    """
    if not hasattr(model_class, "from_pretrained"):
        raise TypeError(
            f"the first argument must be a class with from_pretrained, such as AutoModel, not {model_class!r}"
        )
    dtype = given.pop("torch_dtype", dtype) if dtype == "auto" else dtype
    if isinstance(dtype, str) and dtype != "auto":
        dtype = dtype_of(dtype)
    if url := url_of(folder):
        folder, _ = resolve(f"{url.rstrip('/')}/")
    place = Path(folder, given.get("subfolder") or "")
    files = weight_files(place, given.get("variant"), stems=("model.safetensors", "pytorch_model.bin"))
    wanted = target_dtype(dtype, place)
    for file in files:
        arrays.open_arrays(file).close()  # raises FormatError for a damaged file, before another parser reads it
    to_cast = [file for file in files if wanted is not None and file_needs_cast(file, wanted)]
    casts = {file: cast_once(file, wanted, store) for file in to_cast}
    if warming is not None:
        in_order = [Mapping(casts.get(file, file)) for file in files]
        warming(page_cache.warm(in_order, max_bytes=max_bytes, wait=False))
    with replaced_casts(casts, wanted):
        model = model_class.from_pretrained(os.fspath(folder), dtype=dtype, **given)
    _warn_of_copies(model[0] if isinstance(model, tuple) else model)  # with output_loading_info
    return model


def weight_files(place: Path, variant: str | None, stems: tuple[str, ...] = ("model.safetensors",)) -> list[Path]:
    """Return the weight files that transformers reads, but not files such as consolidated.safetensors."""
    suffix = f".{variant}" if variant else ""
    for stem in stems:
        name, _, kind = stem.rpartition(".")
        one, index = place / f"{name}{suffix}.{kind}", place / f"{stem}.index{suffix}.json"
        if one.exists():
            return [one]
        if index.exists():
            return sorted(map(Path, paths_of(os.fspath(index), names_of_index(index))))
    files = sorted(place.glob(f"*{suffix}.safetensors"))
    if not files:
        reason = "no such folder; huggingface_hub.snapshot_download downloads a model and returns its folder"
        if place.is_dir():
            reason = f"the folder contains neither *{suffix}.safetensors files nor pytorch_model{suffix}.bin"
        raise FileNotFoundError(errno.ENOENT, reason, os.fspath(place))
    return files


def target_dtype(dtype: Any, place: Path) -> Any:
    """Return the dtype to which transformers will cast floating-point weights, or None if it will not cast them."""
    if isinstance(dtype, dict):  # dtypes by module; the key "" is the whole model
        dtype = dtype.get("")
    if dtype not in (None, "auto"):
        return dtype_of(dtype)
    try:
        config = json.loads((place / "config.json").read_text())
        named = config.get("dtype") or config.get("torch_dtype")
        return dtype_of(named if isinstance(named, str) else None)
    except (OSError, ValueError, AttributeError, TypeError):
        return None  # transformers raises an error for this config


_one_at_a_time = threading.RLock()
_SYNCHRONOUS = "HF_DEACTIVATE_ASYNC_LOAD"


@contextlib.contextmanager
def replaced_casts(
    casts: dict[Path, Path], dtype: Any, load_cast: Callable[[Path], dict[str, Any]] = load
) -> Iterator[None]:
    """In the ``with`` block, casts of weights mapped from a file in `casts` return weights from its cast copy."""
    # transformers decides which weights are cast: its calls of Tensor.to are intercepted. torch performs other casts.
    if not casts:
        yield
        return
    from torch import Tensor
    from torch.overrides import TorchFunctionMode

    known = _KnownCasts(casts, load_cast)

    class Casts(TorchFunctionMode):  # type: ignore[misc,unused-ignore]  # the type checker may run without torch
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if function is Tensor.to and len(args) == 1 and kwargs.keys() <= {"device", "dtype"}:
                (tensor,) = args
                wanted = kwargs.get("dtype") == dtype and needs_cast(tensor, dtype)
                on_cpu = tensor.device.type == "cpu" and is_cpu(kwargs.get("device"))
                if wanted and on_cpu and (found := known.of(tensor)) is not None:
                    return found
            return function(*args, **kwargs)

    with _one_at_a_time:
        before = os.environ.get(_SYNCHRONOUS)
        os.environ[_SYNCHRONOUS] = "1"  # a torch function mode applies to one thread
        try:
            with Casts():
                yield
        finally:
            os.environ.pop(_SYNCHRONOUS, None)
            if before is not None:
                os.environ[_SYNCHRONOUS] = before


class _KnownCasts:
    """Finds the cast copy of a weight by the weight's address."""

    def __init__(self, casts: dict[Path, Path], load_cast: Callable[[Path], dict[str, Any]]) -> None:
        self._weights: dict[str, dict[tuple[int, Any, Any], Any]] = {}
        """Cast weights by the real path of the uncast file, then by offset, dtype and shape of the uncast weight."""
        for file, cast in casts.items():
            tensors = load_cast(cast)
            with arrays.open_arrays(file) as source:
                self._weights[os.path.realpath(file)] = {
                    (source.entry(name).offset, weight.dtype, weight.shape): tensors[name]
                    for name, weight in load(file, unsafe_shared=True).items()
                    if weight.numel() and weight.is_contiguous()
                }
        self._held: list[tuple[proc.Region, Any]] = []
        """Mappings of the uncast files, each with a tensor that keeps it alive, so that addresses are not reused."""

    def of(self, tensor: Any) -> Any:
        """Return the cast copy of a weight, or None if the weight is not in a mapping of these files."""
        at = tensor.data_ptr()
        region = next((region for region, _ in self._held if region.start <= at < region.end), None)
        if region is None:
            try:
                region = Regions().at(at)
            except OSError:  # without /proc, every cast is private
                return None
            if region is None or region.path not in self._weights:
                return None
            self._held.append((region, tensor))
        found = self._weights[region.path].get((region.offset + at - region.start, tensor.dtype, tensor.shape))
        return found if tensor.is_contiguous() else None


def _warn_of_copies(model: Any) -> None:
    """Warn if a model has at least 1 MiB of weights on the CPU, but none of them in a mapped file."""
    addresses = {
        one.data_ptr(): one.numel() * one.element_size() for one in model.parameters() if one.device.type == "cpu"
    }
    total = sum(addresses.values())
    try:
        regions = [region for region in map(Regions().at, addresses) if region is not None]
    except OSError:
        return
    if total >= 1 << 20 and not any(one.inode and not one.path.startswith("/dev/zero") for one in regions):
        warnings.warn(
            f"all {size(total)} of weights are in private memory of this process: transformers converted them, or "
            "read them without mapping the files; print(onecopy.explain(model)) lists them",
            UserWarning,
            stacklevel=3,
        )
