"""Hugging Face models whose weights stay mapped, also in another dtype than the file's.

    model = oc.transformers.from_pretrained(AutoModelForCausalLM, "folder/of/the/model", dtype=torch.bfloat16)
    print(oc.explain(model))

transformers maps safetensors files by itself, and keeps them mapped, as long as the weights are wanted as they lie in
the file. A cast makes a private copy in every process; here it is made once per host, in the store.

**When not to use it.** Where the model goes to a GPU: `from_pretrained` itself reads as fast.
"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy import residency
from onecopy.files import Mapping
from onecopy.integrations.torch._cast import cast_once, needs_cast
from onecopy.sets.shards import files_of_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from onecopy.residency import WarmJob
    from onecopy.store import Waiting

__all__ = ["from_pretrained"]


def from_pretrained(
    model_class: Any,
    folder: str | os.PathLike[str],
    *,
    dtype: Any = "auto",
    store: str | os.PathLike[str] | None = None,
    on_wait: Callable[[Waiting], None] | Literal["announce"] | None = "announce",
    warming: Callable[[WarmJob], object] | None = None,
    budget: int | None = None,
    **given: Any,
) -> Any:
    """Make a model from a folder of safetensors files, its weights mapped.

    Parameters
    ----------
    model_class
        What has ``from_pretrained``: ``AutoModel``, ``LlamaForCausalLM``, ...
    folder
        Of a model that was saved or downloaded: ``config.json``, ``model.safetensors`` or its shards.
    dtype
        Of floating-point weights; "auto": as they are in the file.
    store, on_wait
        Of the `Store` that keeps casts; as of `Store.get_or_build`.
    warming, budget
        Bring the files into memory, at most so many bytes, while transformers builds the model: called with the
        `WarmJob` before that begins.
    **given
        What else ``from_pretrained`` takes.

    Returns
    -------
    The model. What of it is not mapped, and why, tells `onecopy.explain`; weights that transformers converts or fuses
    are copies.

    Raises
    ------
    FileNotFoundError
        The folder has no safetensors files.
    FormatError
        One of them is damaged.
    OSError
        What transformers raises; the store cannot be used, or has no room.

    Examples
    --------
    >>> from transformers import AutoModelForCausalLM  # doctest: +SKIP
    >>> model = oc.transformers.from_pretrained(AutoModelForCausalLM, "llama", dtype=torch.float16)  # doctest: +SKIP

    >>> jobs = []  # doctest: +SKIP
    >>> model = oc.transformers.from_pretrained(AutoModel, "llama", warming=jobs.append)  # doctest: +SKIP
    >>> jobs[0].wait()  # doctest: +SKIP
    """
    place = Path(folder)
    files = _files_in(place)
    wanted = _type_of(dtype)
    changed = [file for file in files if wanted is not None and needs_cast(file, wanted)]
    sources = {
        file: cast_once(file, wanted, store=store, on_wait=on_wait) if file in changed else file for file in files
    }
    if warming is not None:
        warming(_warm(sources.values(), budget))
    if not changed:
        return model_class.from_pretrained(place, dtype=dtype, **given)
    with tempfile.TemporaryDirectory() as seen:
        for file in place.iterdir():
            Path(seen, file.name).symlink_to(sources.get(file, file).resolve())
        model = model_class.from_pretrained(seen, dtype=wanted, **given)
    model.name_or_path = model.config._name_or_path = os.fspath(folder)
    return model


def _files_in(place: Path) -> list[Path]:
    """Return the files of weights that transformers reads: others may lie beside them (consolidated.safetensors)."""
    if (place / "model.safetensors").exists():
        return [place / "model.safetensors"]
    index = place / "model.safetensors.index.json"
    if index.exists():
        return sorted(map(Path, files_of_index(index)))
    files = sorted(place.glob("*.safetensors"))
    if not files:
        download = "a model of the hub is downloaded first (huggingface_hub.snapshot_download gives a folder)"
        what = "no *.safetensors files" if place.is_dir() else f"no such folder; {download}"
        raise FileNotFoundError(errno.ENOENT, what, os.fspath(place))
    return files


def _warm(files: Iterable[Path], budget: int | None) -> WarmJob:
    """Begin to bring files into memory, one after the other, as transformers takes them."""
    portions = tuple(residency.Portion(Mapping(file).core) for file in files)
    return residency.warm(residency.Selection(portions), budget=budget, wait=False)


def _type_of(dtype: Any) -> Any:
    import torch

    if dtype is None or dtype == "auto":
        return None
    return getattr(torch, dtype.removeprefix("torch.")) if isinstance(dtype, str) else dtype
