"""Values that represent objects in keys if the objects' pickles would contain addresses or be incomplete."""

from __future__ import annotations

import functools
import gc
import os
import sys
import types
import typing
from pickle import PickleBuffer  # exposes the buffers of arrays: nothing is pickled or unpickled
from typing import TYPE_CHECKING, Any

from onecopy.store.packages import NoIdentity, contents_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Program(functools.partial[Any]):
    """A function to identify. Its package counts as part of the program if it is installed and requires onecopy."""


def _of_cached(value: Any) -> Any:
    return Program(value.__wrapped__), value._inputs if callable(value._inputs) else value._keys(), value._version


def _of_tensor(tensor: Any) -> Any:
    """Return the attributes, gradient, layout, quantisation and data of a torch tensor."""
    torch = sys.modules["torch"]
    keeps_gradient = tensor.is_leaf or tensor.retains_grad
    about = [vars(tensor), tensor.grad if keeps_gradient else None, tensor.requires_grad]
    about += [str(word) for word in (tensor.dtype, tensor.device, tensor.layout)]
    try:
        return about, _parts_of_tensor(torch, tensor.detach())
    except (RuntimeError, NotImplementedError, AttributeError, TypeError) as error:  # as torch raises them
        raise NoIdentity(f"a {type(tensor).__name__} ({tensor.layout}) cannot be read ({error})") from None


def _parts_of_tensor(torch: Any, tensor: Any) -> Any:
    """Return the shape and data of a tensor, or the tensors and numbers that it consists of."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, more = tensor.__tensor_flatten__()
        return tuple(tensor.shape[:1]), names, [getattr(tensor, name) for name in names], more
    if tensor.is_nested:
        return tensor.unbind()
    shape, layout = tuple(tensor.shape), str(tensor.layout)
    if tensor.layout != torch.strided:
        names = _SPARSE.get(layout, ("to_dense",))
        return shape, layout.endswith("coo") and tensor.is_coalesced(), [getattr(tensor, name)() for name in names]
    about = shape, tensor.stride(), tensor.is_conj(), tensor.is_neg(), tensor._is_zerotensor()
    if tensor.device.type == "meta" or tensor._is_zerotensor():
        return about
    if tensor.is_quantized:
        return about, _quantization_of(torch, tensor), tensor.int_repr()
    flat = tensor.cpu().resolve_conj().resolve_neg().contiguous().flatten()
    return about, PickleBuffer(flat.view(torch.uint8).numpy())


_SPARSE: dict[str, tuple[str, ...]] = {
    "torch.sparse_coo": ("_indices", "_values"),
    **dict.fromkeys(("torch.sparse_csr", "torch.sparse_bsr"), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys(("torch.sparse_csc", "torch.sparse_bsc"), ("ccol_indices", "row_indices", "values")),
}
"""Names of the methods that return a tensor's parts, by layout."""


def _quantization_of(torch: Any, tensor: Any) -> Any:
    scheme = tensor.qscheme()
    if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return str(scheme), tensor.q_scale(), tensor.q_zero_point()
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return str(scheme), tensor.q_per_channel_axis(), scales, zeros


def _of_library(library: Any) -> Any:
    """Return the contents of a library loaded by ctypes, and the declared types of its functions."""
    path = library._name
    if path is not None and os.sep not in path:
        with open("/proc/self/maps") as file:  # noqa: PTH123 - of this process
            paths = [line.split(maxsplit=5)[-1].rstrip("\n") for line in file if line.count("/")]
        path = next((each for each in paths if os.path.basename(each) == path), path)  # noqa: PTH119 - text
    functions = {name: function for name, function in vars(library).items() if not name.startswith("_")}
    declared = {name: (f.restype, f.argtypes, f.errcheck) for name, f in functions.items()}
    usual = library._func_restype_, None, None
    return path and contents_of(path), {name: types for name, types in declared.items() if types != usual}


def _of_ctypes_function(function: Any) -> Any:
    library = (function._objects or {}).get("0")
    if not hasattr(library, "_func_restype_"):  # a callback
        return NotImplemented
    return library, function.__name__, function.restype, function.argtypes, function.errcheck


def _of_ufunc(ufunc: Any) -> Any:
    """Return the function inside a ufunc from `numpy.frompyfunc`, whose pickle contains only a name."""
    function = gc.get_referents(ufunc)[0]
    return (ufunc.nin, ufunc.nout, ufunc.identity, function) if callable(function) else NotImplemented


def _of_wrapper(value: Any) -> Any:
    return value.function, value.validate_return, value.config_wrapper.config_dict


def _without(*names: str) -> Callable[[Any], Any]:
    """Return a function that returns an object's attributes except `names`, which are derived from the others."""
    return lambda value: [(name, each) for name, each in sorted(vars(value).items()) if name not in names]


def _of_type_variable(value: Any) -> Any:
    names = "__bound__", "__constraints__", "__covariant__", "__contravariant__", "__default__"
    return value.__module__, value.__name__, [getattr(value, name, None) for name in names]


EQUIVALENTS: dict[Any, Callable[[Any], Any]] = {
    functools.cached_property: lambda value: value.func,
    functools._lru_cache_wrapper: lambda value: value.__wrapped__,
    types.MappingProxyType: dict,
    types.GetSetDescriptorType: lambda value: (value.__objclass__, value.__name__),
    property: lambda value: (value.fget, value.fset, value.fdel),
    staticmethod: lambda value: value.__func__,
    classmethod: lambda value: value.__func__,
    memoryview: lambda value: (value.format, value.shape, value.tobytes()),
    typing.TypeVar: _of_type_variable,
    typing.ParamSpec: _of_type_variable,
    "typing.TypeVarTuple": _of_type_variable,
    "onecopy.data.caching.Cached": _of_cached,
    "ctypes.CDLL": _of_library,
    "_ctypes.CFuncPtr": _of_ctypes_function,
    "numpy.ufunc": _of_ufunc,
    "numpy.vectorize": _without("_ufunc"),
    "pydantic._internal._decorators.Decorator": lambda value: (value.cls_var_name, value.func, value.shim, value.info),
    "pydantic._internal._validate_call.ValidateCallWrapper": _of_wrapper,
    "pydantic.type_adapter.TypeAdapter": lambda value: (value._type, value._config),
    "sklearn.feature_extraction.text._VectorizerMixin": _without("_stop_words_id"),
    "torch.Tensor": _of_tensor,
}
"""Functions that return a value to represent an object, by type, or by the qualified name of the type or a base."""


@functools.lru_cache(maxsize=1024)
def _named(kind: type) -> Callable[[Any], Any] | None:
    names = (f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)
    return next((EQUIVALENTS[name] for name in names if name in EQUIVALENTS), None)


def equivalent_of(value: Any, kind: type) -> Any:
    """Return the value that represents an object, or NotImplemented if its pickle represents it."""
    same = EQUIVALENTS.get(kind) or _named(kind)
    try:
        return NotImplemented if same is None else same(value)
    except AttributeError:  # an unknown release of the library
        return NotImplemented
