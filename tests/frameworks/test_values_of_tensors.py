"""What is written of a tensor is the value that torch gives for it, or an error says why it cannot be written.

The reference is `tolist` of the tensor itself: the flags that make values differ from bytes are then torch's business.
"""

import warnings

import numpy as np
import pytest

import onecopy as oc
from onecopy_records.torch_datasets import bytes_of

torch = pytest.importorskip("torch", reason="torch is not installed")
drop_in = pytest.importorskip("onecopy.safetensors.torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch, for kinds of tensors that it calls prototypes


class Subclass(torch.Tensor):
    """A tensor of another class, with memory of its own."""


class Wrapper(torch.Tensor):
    """A tensor around another one, without memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        raise NotImplementedError(f"{function} of a Wrapper")


def numbers(dtype):
    """Return a tensor of 2 x 3 small numbers; complex ones differ from their conjugates."""
    plain = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.float32)
    if dtype.is_complex:
        plain = torch.complex(plain, plain.flip(1))
    return plain.to(dtype)


def fake(tensor):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        return mode.from_tensor(tensor)


def quantised(tensor):
    return torch.quantize_per_tensor(tensor.to(torch.float32), 0.5, 0, torch.qint8)


KINDS = {
    "plain": lambda one: one,
    "conjugated": torch.conj,
    "negated": torch._neg_view,
    "negated and conjugated": lambda one: torch._neg_view(one.conj()),
    "imaginary part of a conjugate": lambda one: one.conj().imag,
    "real part": lambda one: one.real,
    "zero": lambda one: torch._efficientzerotensor(one.shape, dtype=one.dtype),
    "zero and conjugated": lambda one: torch._efficientzerotensor(one.shape, dtype=one.dtype).conj(),
    "transposed": lambda one: one.T,
    "conjugated and transposed": lambda one: one.mH,
    "expanded": lambda one: one[:1].expand(4, 3),
    "a step of two": lambda one: one[:, ::2],
    "part of a conjugate": lambda one: one.conj()[1],
    "without elements": lambda one: one[:0].conj(),
    "without axes": lambda one: one[0, 0].conj(),
    "with a gradient": lambda one: one.clone().requires_grad_(),
    "computed": lambda one: one.clone().requires_grad_() * 1,
    "a parameter": torch.nn.Parameter,
    "of a subclass": lambda one: one.as_subclass(Subclass),
    "conjugated, of a subclass": lambda one: one.as_subclass(Subclass).conj(),
    "made in inference mode": lambda one: torch.inference_mode()(lambda: one.clone().conj())(),
}
"""What must be written by all that take tensors of this kind, if torch has it of a dtype."""
REFUSED = {
    "sparse": (lambda one: one.to_sparse(), "sparse tensor"),
    "sparse rows": (lambda one: one.to_sparse_csr(), "sparse tensor"),
    "mkldnn": (lambda one: one.to_mkldnn(), "to_dense"),
    "quantised": (quantised, "quantised tensor"),
    "nested": (lambda one: torch.nested.nested_tensor([one[0], one[1, :2]]), "nested tensor"),
    "jagged": (lambda one: torch.nested.nested_tensor([one[0], one[1, :2]], layout=torch.jagged), "nested tensor"),
    "meta": (lambda one: one.to("meta"), "meta device, which has|meta tensor; no data"),
    "fake": (fake, "no memory of its own"),
    "a wrapper": (Wrapper, "no memory of its own"),
    "without a shape": (lambda one: torch.nn.UninitializedParameter(dtype=one.dtype), "uninitialized"),
    "masked": (lambda one: torch.masked.masked_tensor(one, one.real > 2), "no memory of its own"),
}
"""What must be refused by all, with these words."""
SAVED = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
]
"""The dtypes that safetensors has, but the packed ones."""
OTHERS = [torch.complex128, torch.complex32]


WAYS = ["save", "save_file", "bytes", "save_model", "object", "rows", "dataset"]


def written(way, path, tensor):
    """Return what comes back of a tensor that is written one way."""
    if way == "bytes":
        return drop_in.load(drop_in.save({"t": tensor}))["t"]
    if way == "rows":
        return oc.share([tensor])[0]
    if way == "dataset":
        return torch.from_numpy(bytes_of(tensor).copy()).view(tensor.dtype).reshape(tensor.shape)
    if way == "object":
        oc.save_object(path, {"t": tensor})
        return oc.load_object(path, trusted=True)["t"]
    if way == "save_model":
        module = torch.nn.Module()
        module.register_buffer("t", tensor)
        drop_in.save_model(module, path)
    elif way == "save_file":
        drop_in.save_file({"t": tensor}, path)
    else:
        oc.save(path, {"t": tensor})
    return oc.torch.load(path)["t"]


def value_of(tensor):
    return tensor.to(torch.complex64 if tensor.is_complex() else torch.float64).tolist()


def made(kind, dtype):
    """Return a tensor of a kind, or None if torch has none of this dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tensor = kind(numbers(dtype))
            value_of(tensor)
        except (RuntimeError, TypeError):
            return None
    return tensor


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_is_the_value_of_the_tensor_or_an_error_says_why(tmp_path, way, kind):
    for number, dtype in enumerate(SAVED + OTHERS):
        if (tensor := made(KINDS[kind], dtype)) is None:
            continue
        found, why = None, ""
        try:
            found = written(way, tmp_path / f"{number}.safetensors", tensor)
        except Exception as error:  # any: `save_object` passes on what torch raises when it pickles
            why = str(error)
        if found is None:
            assert "incompatible function arguments" not in why
            assert "INTERNAL ASSERT" not in why
            assert way != "save" or dtype in OTHERS, why
        else:
            assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
            assert value_of(found) == value_of(tensor)


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("way", [way for way in WAYS if way != "object"])  # torch itself pickles some of them
def test_a_tensor_without_memory_for_its_values_is_refused_with_the_reason(tmp_path, way, kind):
    make, words = REFUSED[kind]
    words += "|cannot be shared|more than data|Wrapper"  # of rows and data sets, which want plain tensors
    with pytest.raises((TypeError, ValueError, RuntimeError), match=words):
        written(way, tmp_path / "x.safetensors", make(numbers(torch.float32)))
    assert not list(tmp_path.iterdir())


def test_pairs_of_four_bits_are_saved_as_elements(tmp_path):
    pairs = torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(torch.float4_e2m1fn_x2)
    oc.save(tmp_path / "x.safetensors", {"t": pairs})
    assert oc.open(tmp_path / "x.safetensors").entry("t").shape == (2, 8)
    with pytest.raises(TypeError, match="'t'"):
        oc.save(tmp_path / "x.safetensors", {"t": pairs[0, 0]})


def test_rows_of_a_masked_array_are_not_saved_as_if_they_were_valid(path):
    with pytest.raises(TypeError, match=r"'x': .*masked array.*filled\(\)"):
        oc.save(path, {"x": np.ma.array([1.0, 2.0], mask=[False, True])})
