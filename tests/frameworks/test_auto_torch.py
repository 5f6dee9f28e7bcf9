"""torch under `onecopy run`: weights have the values that torch gives them, and are pages of a snapshot.

All cases are run by one process that has imported torch, each case in a fork and a folder of its own.
"""

import pytest
from tests.support.same_answers import outcomes, same_answers

pytestmark = pytest.mark.timeout(600)  # the first test runs all cases
PRELUDE = """
import os, pathlib, sys
import torch
import onecopy as oc, onecopy.auto
plain_load_state_dict = torch.nn.Module.load_state_dict.__wrapped__
def plain_load(path):
    with open(path, "rb") as file:
        return torch.load(__import__("io").BytesIO(file.read()))
def outcome_of(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error), str(error.__context__)
from safetensors.torch import load_file, save_file

def model(width=512, seed=0, **kwargs):
    torch.manual_seed(seed)
    first, last = (torch.nn.Linear(width, width, **kwargs) for _ in range(2))
    return torch.nn.Sequential(first, torch.nn.BatchNorm1d(width, **kwargs), last)

def linears(*sizes, width=512):
    return torch.nn.Sequential(*(torch.nn.Linear(width, size, bias=False) for size in sizes))

def on_files(module):
    return {finding.name for finding in oc.explain(module).findings if f"onecopy:{folder}" in finding.path}

def private(module):
    return oc.explain(module).private

def reasons():
    return {call.reason for call in onecopy.auto.calls() if call.reason}

def equal(one, other):
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
"""
FILES = """
folder = pathlib.Path.cwd()
saved = {name: tensor.clone() for name, tensor in model().state_dict().items()}
tensors, checkpoint = folder / "m.safetensors", folder / "m.pt"
save_file(saved, tensors)
torch.save(saved, checkpoint)
LARGE = {"0.weight", "2.weight"}
"""
SOURCES = ["load_file(tensors)", "torch.load(checkpoint)", "torch.load(checkpoint, map_location='cpu')"]
MOVED = """
given, again = SOURCE, SOURCE
one, two = model(seed=1), model(seed=2)
one[2].weight.requires_grad_(False)
optimizer = torch.optim.SGD(one.parameters(), 0.1)
before = dict(one.named_parameters())
for module, state in ((one, given), (two, again)):
    assert list(module.load_state_dict(state)) == [[], []]
    equal(module.state_dict(), saved)
    assert LARGE <= on_files(module) and private(module) < 100_000 and not reasons(), reasons()
assert all(before[name] is now for name, now in one.named_parameters())
assert one[0].weight.requires_grad and not one[2].weight.requires_grad
one(torch.randn(4, 512)).square().sum().backward()
optimizer.step()
assert not torch.equal(one[0].weight, saved["0.weight"])
for state in (given, again, two.state_dict(), load_file(tensors), plain_load(checkpoint)):
    equal(state, saved)
given["2.weight"].zero_()
equal(two.state_dict(), saved)
for state in (torch.load(checkpoint), load_file(tensors)):  # values that are loaded again replace written ones
    for _ in range(3):
        one.load_state_dict(state)
        equal(one.state_dict(), saved)
        with torch.no_grad():
            one[0].weight.add_(1)
changed = {name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in saved.items()}
save_file(changed, folder / "changed.safetensors")
two.load_state_dict(load_file(folder / "changed.safetensors"))
equal(two.state_dict(), changed)
equal(load_file(tensors), saved)
assert LARGE <= on_files(two)
with torch.device("meta"):
    empty = model()
empty.load_state_dict(SOURCE, assign=True)
equal(empty.state_dict(), saved)
"""
COPIED = {
    "dtype": ("other.double()", "cast from float32 to float64"),
    "not a file": ("given = {n: t.clone() for n, t in saved.items()}", "the given tensors are not in a mapped file"),
    "changed": ("[t.numpy().__imul__(2) for t in given.values()]", "changed after it was loaded"),
    "changed at its end": ("[t[-1].mul_(2) for t in given.values() if t.ndim == 2]", "changed after it was loaded"),
    "address": ("kept = [p.data_ptr() for p in other.parameters()]", "the program has read the weight's address"),
    "alias": ("held = [p.detach() for p in other.parameters()]", "other tensors share the weight's memory"),
    "array": ("held = [p.detach().numpy() for p in other.parameters()]", "in another library's memory"),
    "shared memory": ("other.share_memory()", "in memory that is shared with other processes"),
    "removed": ("tensors.unlink()", "the file was removed after it was mapped"),
    "replaced": (
        "save_file(saved, f'{tensors}.2'); os.replace(f'{tensors}.2', tensors)",
        "was removed after it was mapped",
    ),
    "transposed": ("given = {n: t.t() if t.ndim == 2 else t for n, t in given.items()}", "not contiguous"),
}
COPIES = """
other, given = model(seed=1), load_file(tensors)
PREPARE
plain = model(seed=1, dtype=other[0].weight.dtype)
other.load_state_dict(given)
plain_load_state_dict(plain, given)
equal(other.state_dict(), plain.state_dict())
assert any(REASON in each for each in reasons()), reasons()
assert not LARGE & on_files(other)
"""
UNUSUAL = {
    "conjugated": (
        "given = given.conj(); target = torch.zeros_like(saved)",
        "a conjugated, negated or inference tensor",
    ),
    "negated": (
        "given = torch._neg_view(given); target = torch.zeros_like(saved)",
        "a conjugated, negated or inference tensor",
    ),
    "transposed": ("target = torch.zeros_like(saved).t()", "not contiguous"),
    "of another shape": ("target = torch.zeros(2, *saved.shape, dtype=saved.dtype)", "the shapes differ"),
    "of another class": ("target = torch.zeros_like(saved).as_subclass(Named)", "a tensor of the class Named"),
    "computed": ("target = torch.zeros_like(saved, requires_grad=True) * 1", "computed from other tensors"),
    "of numpy": ("seen = np.zeros(saved.shape, 'c8'); target = torch.from_numpy(seen)", "in another library's memory"),
    "a part": ("seen = torch.zeros_like(saved).repeat(2, 1); target = seen[512:]", "other tensors share the weight"),
}
COPIED_TO_IT = """
import numpy as np
class Named(torch.Tensor):
    pass
class Module(torch.nn.Module):
    def _load_from_state_dict(self, state, *_):
        with torch.no_grad():
            self.target.copy_(state["x"])
saved = torch.randn(512, 512, dtype=torch.complex64)
torch.save({"x": saved}, checkpoint)
found = []
for load in (torch.nn.Module.load_state_dict, plain_load_state_dict):
    module, given, seen = Module(), torch.load(checkpoint)["x"], ()
    PREPARE
    module.target = target
    del target
    load(module, {"x": given})
    now = module.target
    found.append((type(now), now.shape, now.stride(), now.tolist(), np.asarray(seen).tolist()))
assert found[0] == found[1]
assert any(REASON in each for each in reasons()), reasons()
"""
WRITTEN = """
other, held = model(seed=1), model(seed=2)
for path in (tensors, checkpoint):
    given = load_file(path) if path is tensors else torch.load(path)
    other.load_state_dict(given)
    held.load_state_dict(given)
with torch.no_grad():
    other[0].weight.add_(1)
new = {name: tensor.clone() for name, tensor in other.state_dict().items()}
SAVE
equal(held.state_dict(), saved)
equal(load_file(tensors) if SAFETENSORS else torch.load(checkpoint), new)
"""
OLD_FORMAT = "torch.save(saved, checkpoint, _use_new_zipfile_serialization=False)"
DECODING = """
import io
odd = bytes(byte ^ 1 for byte in range(256))
class Decoding(io.FileIO):
    def readinto(self, into):
        data = super().read(len(into)).translate(odd)
        into[:len(data)] = data
        return len(data)
checkpoint.write_bytes(checkpoint.read_bytes().translate(odd))
file = io.BufferedReader(Decoding(checkpoint))
"""
LOADS = {
    "a model": ("torch.save(model(), checkpoint)", "torch.load(checkpoint, weights_only=False).state_dict()", None),
    "the old format": (OLD_FORMAT, "torch.load(checkpoint)", "torch before 1.6"),
    "the old format, open": (f"{OLD_FORMAT}; file = checkpoint.open('rb', 0)", "torch.load(file)", "torch before 1.6"),
    "an open file": ("file = checkpoint.open('rb')", "torch.load(file)", None),
    "a file that decodes": (DECODING, "torch.load(file)", None),
    "to meta": ("", "torch.load(checkpoint, map_location='meta') and saved", None),
    "mmap given": ("", "torch.load(checkpoint, mmap=False)", None),
    "a file of safetensors": ("", "torch.load(tensors)", None),
}
LOADED = """
PREPARE
equal(LOADED, saved)
assert [REASON in each for each in reasons()] == EXPECTED, reasons()
if "file" in globals():
    file.close()
"""
OTHERS = {
    "parts of one storage are both shared": """
whole = torch.randn(1024, 512)
torch.save({"0.weight": whole[512:], "2.weight": whole[:512]}, checkpoint)
other = linears(512, 512, 512)
other.load_state_dict(torch.load(checkpoint), strict=False)
assert torch.equal(other[0].weight, whole[512:]) and torch.equal(other[2].weight, whole[:512])
assert LARGE <= on_files(other) and not reasons(), reasons()
""",
    "outputs and gradients are bit for bit equal, wherever the file has its weights": """
begins = set()
for length in range(0, 64, 8):
    save_file(saved, tensors, {"x": "x" * length})
    begins.add(int.from_bytes(tensors.read_bytes()[:8], "little") % 64)
    results = []
    for load in (torch.nn.Module.load_state_dict, plain_load_state_dict):
        one = model(seed=1)
        load(one, load_file(tensors))
        results.append(one)
        torch.manual_seed(3)
        out = one(torch.randn(8, 512)).sum()
        out.backward()
        results.append((out.item(), one[0].weight.grad.tolist(), {p.data_ptr() % 64 for p in one.parameters()}))
    assert LARGE <= on_files(results[0]) and results[1] == results[3] and results[1][2] == {0}
assert len(begins) == 8 and not reasons(), reasons()
""",
    "a weight that the file does not align as the others is copied": """
module, plain = (linears(513, 512, 512, width=511) for _ in range(2))
odd = {name: torch.randn_like(weight) for name, weight in module.state_dict().items()}
save_file(odd, tensors)
module.load_state_dict(load_file(tensors))
plain_load_state_dict(plain, load_file(tensors))
equal(module.state_dict(), plain.state_dict())
assert on_files(module) == {"0.weight"}
assert reasons() == {"not aligned in the file"}, reasons()
assert {parameter.data_ptr() % 64 for parameter in module.parameters()} == {0}
""",
    "hooks that rename and modules that are tied work": """
tied = linears(512, 512)
tied[1].weight = tied[0].weight
tied.register_load_state_dict_pre_hook(lambda _, state, *__: state.update({"0.weight": state.pop("old.weight", None)}))
weight, version = saved["0.weight"], tied[0].weight._version
save_file({"old.weight": weight, "1.weight": weight.clone()}, tensors)
assert list(tied.load_state_dict(load_file(tensors))) == [[], []]
assert tied[0].weight is tied[1].weight and torch.equal(tied[0].weight, weight)
assert on_files(tied) and tied[0].weight._version == version + 2
torch.save({"old.weight": weight, "1.weight": weight}, checkpoint)
tied.load_state_dict(torch.load(checkpoint))
assert tied[0].weight is tied[1].weight and tied[0].weight._version == version + 4
assert private(tied) < 20_000 and "0.weight" in on_files(tied)
""",
    "weights that are one in the file stay two in a module that has two": """
weight = torch.randn(512, 512)
torch.save({"0.weight": weight, "2.weight": weight, "1.weight": weight[3:5]}, checkpoint)
other, plain = (linears(512, 2, 512) for _ in range(2))
other.load_state_dict(torch.load(checkpoint))
plain_load_state_dict(plain, plain_load(checkpoint))
for module in (other, plain):
    with torch.no_grad():
        module[0].weight[4] += 1
equal(other.state_dict(), plain.state_dict())
assert len(on_files(other)) == 1
assert reasons() == {"another weight uses the same bytes of the file"}, reasons()
""",
    "errors are those of torch": """
loads = torch.nn.Module.load_state_dict, plain_load_state_dict
for module in (model(256), torch.nn.Linear(512, 512)):
    one, other = (outcome_of(lambda: load(module, load_file(tensors))) for load in loads)
    assert one[0] is RuntimeError and one == other, (one, other)
checkpoint.write_bytes(checkpoint.read_bytes()[:1 << 20] + bytes(1 << 20))
for path in (folder / "none.pt", checkpoint):
    one, other = (outcome_of(lambda: load(path)) for load in (torch.load, plain_load))
    assert one == other, (one, other)
""",
    "a tensor that is freed takes nothing from those beside it in the file": """
torch.save({name: torch.ones(200_000) for name in "abc"}, checkpoint)
state = torch.load(checkpoint)
assert onecopy.auto.calls() and all(state[name].untyped_storage().data_ptr() % 4096 for name in "bc")
for name in "abc":
    state[name].fill_(7)
del state["b"]
assert all(bool((tensor == 7).all()) for tensor in state.values())
""",
    "weights without memory of their own keep no other from being shared": """
def mixed(seed):
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.LazyLinear(8))
    module.register_buffer("sparse", torch.eye(300).to_sparse())
    return module
state = mixed(1).state_dict()
torch.save(state, checkpoint)
other = mixed(2)
assert list(other.load_state_dict(torch.load(checkpoint, weights_only=False))) == [[], []]
assert torch.equal(other[0].weight, state["0.weight"]) and torch.nn.parameter.is_lazy(other[1].weight)
assert "0.weight" in on_files(other)
assert not reasons(), reasons()
""",
    "a checkpoint behind other bytes of a file": """
checkpoint.write_bytes(bytes(4096) + checkpoint.read_bytes())
with checkpoint.open("rb") as file:
    file.seek(4096)
    equal(torch.load(file), saved)
assert onecopy.auto.calls()
""",
}


def filled(code: str, **values: object) -> str:
    """Return a case with words replaced by values."""
    for word, value in values.items():
        code = code.replace(word, str(value))
    return FILES + code


CASES = {
    **{f"moved: {source}": filled(MOVED, SOURCE=source) for source in SOURCES},
    **{f"copied: {name}": filled(COPIES, PREPARE=code, REASON=repr(why)) for name, (code, why) in COPIED.items()},
    **{f"to {name}": filled(COPIED_TO_IT, PREPARE=code, REASON=repr(why)) for name, (code, why) in UNUSUAL.items()},
    "written: torch": filled(WRITTEN, SAVE="torch.save(other.state_dict(), checkpoint)", SAFETENSORS=False),
    "written: safetensors": filled(WRITTEN, SAVE="save_file(other.state_dict(), tensors)", SAFETENSORS=True),
    **{
        f"loaded: {name}": filled(LOADED, PREPARE=code, LOADED=load, REASON=repr(why), EXPECTED=[True] if why else [])
        for name, (code, load, why) in LOADS.items()
    },
    **{name: filled(code) for name, code in OTHERS.items()},
}
"""Names begin with what happens to the weights."""


@pytest.fixture(scope="module")
def done(torch, tmp_path_factory):
    return outcomes(CASES, tmp_path_factory.mktemp("cases") / "run", prelude=PRELUDE, warnings="error")


@pytest.mark.parametrize("name", CASES)
def test_weights_have_the_values_of_torch_and_are_shared_where_a_case_says_so(done, name):
    assert done[name].status == 0, done[name].errors


BOTH = """
import io, pickle
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
torch.manual_seed(0)
"""
SAME = {
    "where a file was read": """
torch.save(torch.ones(1 << 19), "x.pt")
for buffering in (0, -1, 1 << 20):
    with open("x.pt", "rb", buffering) as file:
        print(torch.load(file).sum(), file.tell(), len(file.read()))
""",
    "a record that has another size": """
torch.save(torch.ones(1 << 19), "x.pt")
for nbytes in (1 << 21, 1 << 20, 1 << 22):
    with open("x.pt", "rb") as file, torch.serialization._open_zipfile_reader(file) as reader:
        try:
            found = reader.get_storage_from_record("data/0", nbytes, torch.UntypedStorage)
            print(found.shape, found.untyped_storage().nbytes())
        except RuntimeError as error:
            print(error)
torch.load("x.pt")
""",
    "a compressed archive whose entry is aligned": """
import zipfile
torch.save(torch.arange(1 << 19), "x.pt")
offset = 1
for padding in range(64):
    if offset % 64:
        with zipfile.ZipFile("x.pt") as x, zipfile.ZipFile("z.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=0) as z:
            z.writestr("x/padding", "x" * padding, zipfile.ZIP_STORED)
            for name in x.namelist():
                z.writestr(name, x.read(name))
        offset = torch._C.PyTorchFileReader("z.pt").get_record_offset("data/0")
print(offset % 64, torch.equal(torch.load("z.pt"), torch.load("x.pt")))
""",
    "what modes see": """
seen = []
class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(function.__name__)
        if function is torch.Tensor.copy_:
            args = (args[0], args[1] * 2)
        return function(*args, **(kwargs or {}))
class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))
module = torch.nn.Linear(1000, 1000)
torch.save(module.state_dict(), "x.pt")
for mode in (Functions, Operators):
    with mode():
        module.load_state_dict(torch.load("x.pt"))
    print(seen, module.weight.sum())
with torch.device("cpu"):
    module.load_state_dict(torch.load("x.pt"))
""",
    "errors of functions before which onecopy takes a step": """
torch.save(torch.ones(1 << 19), "x.pt")
torch.load("x.pt")
module = torch.nn.Linear(2, 2)
for call in (
    lambda: module.register_parameter("x", 5),
    lambda: module.register_parameter("x"),
    lambda: module.load_state_dict(5),
    lambda: module.weight.resize_("a"),
    lambda: torch.load(open("x.pt", "rb").__class__),
    lambda: torch.Tensor.data_ptr(5),
):
    try:
        call()
    except Exception as error:
        print(type(error), error, error.__context__, error.__cause__)
""",
    "what torch.compile says": """
import warnings
torch.save(torch.nn.Linear(600, 600).state_dict(), "x.pt")
module = torch.nn.Linear(600, 600)
with warnings.catch_warnings():
    warnings.simplefilter("error")
    for call in (
        lambda x: (x.data_ptr() > 0, x + 1),
        lambda x: torch.from_numpy(x.numpy() + 1),
        lambda x: x.clone().resize_(2),
        lambda x: (x.untyped_storage().resizable(), x + 1),
        lambda x: (module.load_state_dict(torch.load("x.pt")), x + 1),
        lambda x: (torch.nn.Module().register_parameter("x", torch.nn.Parameter(torch.ones(5))), x + 1),
    ):
        for options in ({}, {"fullgraph": True}):
            torch._dynamo.reset()
            try:
                print(torch.compile(call, backend="eager", **options)(torch.ones(4)))
            except Exception as error:
                print(type(error), str(error).split("Explanation")[0])
""",
    "mappings of many weights": """
def mappings():
    with open("/proc/self/maps") as file:
        return sum(1 for _ in file)
import safetensors.numpy
import safetensors.torch
for size, name in ((5_000, "small"), (70_000, "x")):
    tensors = {str(n): torch.full((size,), float(n)) for n in range(300)}
    torch.save(tensors, f"{name}.pt")
    safetensors.torch.save_file(tensors, f"{name}.safetensors")
    before = mappings()
    loaded = torch.load(f"{name}.pt")
    print(mappings() - before < 50, all(loaded[str(n)][5] == n for n in range(300)))
    arrays = safetensors.numpy.load_file(f"{name}.safetensors")
    print(mappings() - before < 50, all(arrays[str(n)][size - 1] == n for n in range(300)))
modules = torch.nn.ParameterDict({str(n): torch.nn.Parameter(torch.zeros(70_000)) for n in range(300)})
modules.load_state_dict(loaded)
print(mappings() - before < 100, all(modules[str(n)][7] == n for n in range(300)))
""",
    "a weight that is resized": """
torch.save(torch.nn.Linear(1000, 1000).state_dict(), "x.pt")
module = torch.nn.Linear(1000, 1000)
module.load_state_dict(torch.load("x.pt"))
view = module.weight.detach()[2:]
module.weight.data.resize_(2000, 1000)[5] = 7
print(view.shape, view[3].sum(), module.weight.shape, module.weight[:1000].sum())
""",
    "pickles of methods": """
torch.save(torch.ones(1 << 19), "x.pt")
torch.load("x.pt")
for function in (torch.Tensor.numpy, torch.Tensor.resize_, torch.Tensor.resize_as_, torch.UntypedStorage.resize_):
    print(pickle.loads(pickle.dumps(function)) is function)
""",
}


@pytest.fixture(scope="module")
def same(torch, tmp_path_factory):
    return same_answers(SAME, tmp_path_factory.mktemp("same"), prelude=BOTH)


@pytest.mark.parametrize("name", SAME)
def test_programs_print_the_same(same, name):
    assert "x.pt" in same(name).shared


def test_tensors_of_20_kb_are_shared(same):
    shared = same("mappings of many weights").shared
    assert shared["small.pt"] == shared["small.safetensors"] == 300 * 20_000
