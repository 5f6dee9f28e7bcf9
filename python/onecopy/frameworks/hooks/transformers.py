"""Makes `from_pretrained` in transformers cast weights to another dtype once per machine, and map the result.

transformers itself maps weights whose dtype does not change. Files on network and user-space file systems are read into
the page cache in the background.

**Not shared:** calls with some arguments (see `_folder`); weights that transformers initialises or converts (`_note`).
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers  # `hooks` loads this module when transformers is imported
from transformers.utils import cached_file

from onecopy.frameworks.hooks.torch import address_of, load_resizable
from onecopy.frameworks.torch._load import cast_once, dtype_of, file_needs_cast
from onecopy.frameworks.transformers import replaced_casts, target_dtype, weight_files
from onecopy.memory.proc import Regions
from onecopy.run import call_log
from onecopy.run.call_log import note
from onecopy.run.hooks import replace
from onecopy.run.mapped import keep, read_ahead

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

FROM_PRETRAINED = "transformers.from_pretrained"
_OTHER_WAYS = ("gguf_file", "quantization_config", "from_tf", "from_flax", "disable_mmap")
"""Arguments with which transformers does not map safetensors files."""
_MIN_VERSION = 5
"""The first version that loads weights with the file's dtype by default."""


def apply(modeling_utils: ModuleType) -> None:
    """Replace `PreTrainedModel.from_pretrained`, which all model classes call."""
    replace(modeling_utils.PreTrainedModel, "from_pretrained", _from_pretrained)


def _from_pretrained(original: Any) -> Any:
    function: Callable[..., Any] = original.__func__  # of the class method

    def from_pretrained(cls: Any, *args: Any, **kwargs: Any) -> Any:
        name = args[0] if args else kwargs.get("pretrained_model_name_or_path")
        if name is None:  # there is no checkpoint, or transformers raises an error
            return function(cls, *args, **kwargs)
        path, files, job = str(name), dict[Path, Path](), None
        with ExitStack() as casts:
            try:
                folder, reason = _folder(name, kwargs)
                if folder is not None:
                    path = str(folder.absolute())
                    weights = _weights_in(folder, kwargs)
                    files, dtype = _casts(weights, folder, kwargs)
                    job = read_ahead(FROM_PRETRAINED, [file for file in weights if file not in files])
                    casts.enter_context(replaced_casts(files, dtype, load_resizable))
            except Exception as error:  # any: transformers loads, or raises its own error
                reason = str(error)
            loaded = function(cls, *args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded  # with output_loading_info
        with suppress(Exception):  # any: /proc is missing, or weights have no memory
            keep(job, model)
            _note(model, path, files, reason)
        return loaded

    return classmethod(from_pretrained)


def _folder(name: Any, given: dict[str, Any]) -> tuple[Path | None, str]:
    """Return a model's folder, which may be in the hub cache, or None and the reason why its weights are not shared."""
    device = given.get("device_map")
    if device is not None and str(device) != "cpu":
        return None, f"device_map={device!r}"
    other = next((f"{option}={given[option]!r}" for option in _OTHER_WAYS if given.get(option)), "")
    if other or int(transformers.__version__.split(".")[0]) < _MIN_VERSION:
        return None, other or f"transformers {transformers.__version__}"
    if Path(name).is_dir():
        return Path(name, given.get("subfolder") or ""), ""
    where = {one: given[one] for one in ("cache_dir", "revision", "subfolder") if given.get(one)}
    found = cached_file(str(name), "config.json", local_files_only=True, **where)
    return None if found is None else Path(found).parent, ""


def _weights_in(folder: Path, given: dict[str, Any]) -> list[Path]:
    with suppress(FileNotFoundError):  # the model has another format
        return weight_files(folder, given.get("variant"))
    return []


def _casts(files: list[Path], folder: Path, given: dict[str, Any]) -> tuple[dict[Path, Path], Any]:
    """Return the files whose weights must be cast, each with its cast copy in the store, and the target dtype."""
    dtype = given.get("dtype", given.get("torch_dtype", "auto"))
    wanted = target_dtype(dtype if dtype in (None, "auto") or isinstance(dtype, dict) else dtype_of(dtype), folder)
    if wanted is None:
        return {}, None
    return {file: cast_once(file, wanted) for file in files if file_needs_cast(file, wanted)}, wanted


def _note(model: Any, path: str, casts: dict[Path, Path], reason: str) -> None:
    """Report how many bytes of weights are in cast copies of files, and how many are private; the rest is mapped."""
    regions = Regions()
    weights = {address_of(one): one.numel() * one.element_size() for one in (*model.parameters(), *model.buffers())}
    places = {at: found.path for at in weights if (found := regions.at(at)) is not None and found.inode}
    shared_files = {str(cast) for cast in casts.values()}
    shared = sum(weights[at] for at in places if places[at] in shared_files)
    copied = sum(weights[at] for at in weights if at not in places)
    if shared:
        for cast in shared_files:
            call_log.mapped(cast, path)
        note(FROM_PRETRAINED, path, shared=shared)
    if copied:
        note(FROM_PRETRAINED, path, copied=copied, reason=reason or "initialised, converted or cast by transformers")
