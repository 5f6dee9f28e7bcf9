"""Hugging Face models whose weights stay mapped, also in another dtype than the file's.

    model = oc.transformers.from_pretrained(AutoModelForCausalLM, "folder/of/the/model", dtype=torch.bfloat16)
    print(oc.explain(model))

transformers maps safetensors files by itself, and keeps them mapped, as long as the weights are wanted as they lie in
the file. A cast makes a private copy in every process; here it is made once per host, in the store.

**When not to use it.** Where the model goes to a GPU: `from_pretrained` itself reads as fast.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onecopy.integrations.torch._cast import cast_once, needs_cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from onecopy.store import Waiting

__all__ = ["from_pretrained"]


def from_pretrained(
    model_class: Any,
    folder: str | os.PathLike[str],
    *,
    dtype: Any = "auto",
    store: str | os.PathLike[str] | None = None,
    on_wait: Callable[[Waiting], None] | Literal["announce"] | None = "announce",
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
    """
    place = Path(folder)
    files = sorted(place.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{place}: no *.safetensors files")
    wanted = _type_of(dtype)
    changed = [file for file in files if wanted is not None and needs_cast(file, wanted)]
    if not changed:
        return model_class.from_pretrained(place, dtype=dtype, **given)
    with tempfile.TemporaryDirectory() as seen:
        for file in place.iterdir():
            source = cast_once(file, wanted, store=store, on_wait=on_wait) if file in changed else file
            Path(seen, file.name).symlink_to(source.resolve())
        model = model_class.from_pretrained(seen, dtype=wanted, **given)
    model.name_or_path = model.config._name_or_path = os.fspath(folder)
    return model


def _type_of(dtype: Any) -> Any:
    import torch

    if dtype is None or dtype == "auto":
        return None
    return getattr(torch, dtype) if isinstance(dtype, str) else dtype
