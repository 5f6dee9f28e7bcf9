"""Models of transformers under `onecopy run`: weights, training, errors and files are those of the plain program."""

import pytest
from tests.support.same_answers import same_answers

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(600)  # the first test runs all programs

PRELUDE = """
import copy, hashlib, io, os, pickle, shutil, sys, warnings
from pathlib import Path
import torch, transformers
import onecopy as oc
from transformers import AutoModel, AutoModelForCausalLM

transformers.logging.set_verbosity_error()
torch.manual_seed(0)
torch.set_num_threads(1)
IS_SHARED = "ONECOPY_RUN" in os.environ

def digest(data):
    return hashlib.sha256(data).hexdigest()[:12]

def bytes_of(tensor):
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""

def facts(tensor):
    storage = tensor.untyped_storage()
    return (
        (type(tensor).__name__, str(tensor.dtype), tuple(tensor.shape), tensor.stride(), str(tensor.device)),
        (tensor.requires_grad, tensor.is_leaf, tensor.is_shared(), tensor._version, tensor.storage_offset()),
        (storage.resizable(), storage.nbytes(), digest(bytes_of(tensor))),
    )

def show(what, model):
    tied, every = {}, {"remove_duplicate": False}
    for name, tensor in [*model.named_parameters(**every), *model.named_buffers(**every)]:
        print(what, name, facts(tensor), "same as", tied.setdefault(id(tensor), name))
    print(what, model.dtype, model.training, digest(repr(model).encode()))

def loaded(folder="m", **more):
    return AutoModelForCausalLM.from_pretrained(folder, **more)

def attempt(what, f):
    try:
        result = f()
    except Exception as error:
        print(what, type(error).__name__, str(error).splitlines()[:2])
    else:
        print(what, type(result).__name__ if hasattr(result, "parameters") else result)
        return result

def llama(**options):
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "max_position_embeddings": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 4096}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, **options)).eval()

TOKENS = torch.arange(24).view(2, 12) % 512

def out(model, **more):
    with torch.no_grad():
        result = model(TOKENS, **more)
    return digest(bytes_of(result[0]))
"""

ARCHITECTURES = """
gpt2 = transformers.GPT2Config(vocab_size=4096, n_embd=256, n_layer=2, n_head=4, n_positions=128)
t5 = transformers.T5Config(vocab_size=4096, d_model=256, d_ff=512, num_layers=2, num_heads=4)
MODELS = {
    "llama": llama(tie_word_embeddings=True),
    "gpt2": transformers.GPT2LMHeadModel(gpt2),
    "t5": transformers.T5ForConditionalGeneration(t5),
}
for name, model in MODELS.items():
    model.save_pretrained(name)
    model.save_pretrained(name + "-parts", max_shard_size="1MB")
    for folder in (name, name + "-parts"):
        print(folder, sorted(path.name for path in Path(folder).iterdir()))
        for dtype in (None, "auto", torch.bfloat16, torch.float16):
            again = type(model).from_pretrained(folder, **({} if dtype is None else {"dtype": dtype}))
            show(f"{folder} {dtype}", again)
            if name.startswith(("llama", "gpt2")):
                print("out", out(again))
    Path(name + "-bin").mkdir()
    shutil.copy(name + "/config.json", name + "-bin")
    torch.save(model.state_dict(), name + "-bin/pytorch_model.bin")
    again = attempt("bin", lambda: type(model).from_pretrained(name + "-bin"))
    if again is not None:
        show(name + "-bin", again)
"""

USES = """
llama().save_pretrained("m")
# A step of training, and what is written then
model = loaded().train()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(2):
    loss = model(TOKENS, labels=TOKENS).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("loss", float(loss))
show("trained", model)
model.save_pretrained("trained")
print(digest(Path("trained/model.safetensors").read_bytes()), digest(Path("m/model.safetensors").read_bytes()))
show("again", loaded("trained"))
# Copies
model = loaded()
for name, copied in (
    ("deepcopy", copy.deepcopy(model)),
    ("pickle", pickle.loads(pickle.dumps(model))),
    ("half", loaded().half()),
    ("double", loaded().double()),
    ("share", loaded().share_memory()),
    ("train", loaded().train()),
):
    show(name, copied)
    print(name, out(copied) if name != "half" else "")
# In place
with torch.no_grad():
    for parameter in model.parameters():
        parameter.mul_(2)
show("in place", model)
show("untouched", loaded())
model = loaded()
model.resize_token_embeddings(5000)
torch.manual_seed(1)
print([tuple(p.shape) for p in model.parameters()][:2])
print(digest(bytes_of(model.get_input_embeddings().weight[:4096])))
attempt("resize", lambda: loaded().get_input_embeddings().weight.data.resize_(8192, 256))
show("frozen", loaded().requires_grad_(False))
for dtype, assign in ((None, False), (None, True), ("bfloat16", False)):
    model = loaded(dtype=dtype)
    model.load_state_dict(loaded("trained").state_dict(), assign=assign)
    show(f"loaded {dtype} {assign}", model)
# A child writes to its copy
model = loaded()
before = out(model)
child = os.fork()
if child == 0:
    with torch.no_grad():
        next(model.parameters()).zero_()
    os._exit(0 if out(model) != before else 1)
print("child", os.waitpid(child, 0)[1], out(model) == before)
print("generate", loaded().generate(TOKENS[:1], max_new_tokens=5, do_sample=False, pad_token_id=0).tolist())
"""

WRITES = """
first, second = llama(), llama()
first.save_pretrained("one")
second.save_pretrained("two")
reference = out(loaded("two"))
held = loaded("one")
print(out(held))
second.save_pretrained("one")  # over the files of a loaded model
print("saved over", out(held), out(loaded("one")) == reference)
held = loaded("one")
held.save_pretrained("one")
print("saved over itself", out(held), out(loaded("one")))
path = Path("one/model.safetensors")
whole = path.read_bytes()
held = loaded("one")
with path.open("r+b") as file:
    file.seek(-4096, 2)
    file.write(bytes(4096))
print("written", out(held), out(loaded("one")))
os.truncate(path, 4096)
attempt("short", lambda: loaded("one"))
path.write_bytes(whole)
held = loaded("one")
path.unlink()
print("removed", out(held))
attempt("none", lambda: loaded("one"))
path.write_bytes(whole)
held = loaded("one")
shutil.copyfile("two/model.safetensors", path)
print("copied over", out(held), out(loaded("one")) == reference)
path.write_bytes(whole)
held = loaded("one")
os.replace("two/model.safetensors", path)
print("replaced", out(held), out(loaded("one")) == reference)
path.write_bytes(b"garbage" * 1000)
attempt("garbage", lambda: loaded("one"))
path.write_bytes(whole)
attempt("mismatched", lambda: loaded("one", vocab_size=5000))
for model, info in (
    loaded("one", vocab_size=5000, ignore_mismatched_sizes=True, output_loading_info=True),
    transformers.LlamaModel.from_pretrained("one", output_loading_info=True),
):
    for key, value in sorted(info.items()):
        print(key, sorted(map(str, value)) if isinstance(value, (set, list)) else value)
show("base", model)
attempt("revision", lambda: loaded("one", variant="fp16"))
attempt("map", lambda: out(loaded("one", device_map="cpu")))
attempt("meta", lambda: str(loaded("one", device_map="meta").device))
os.chmod(path, 0o444)
print("read only", out(loaded("one")))
os.chmod(path, 0o644)
os.link(path, "hard")
os.makedirs("linked")
shutil.copy("one/config.json", "linked")
os.symlink("../hard", "linked/model.safetensors")
held = loaded("linked")
with path.open("r+b") as file:
    file.seek(-4096, 2)
    file.write(bytes(4096))
print("through links", out(held), out(loaded("linked")))
print(len(os.listdir("/proc/self/fd")))
"""


CASTS = """
llama().save_pretrained("m")
llama().save_pretrained("outer/inner", variant="v")
half, inner = {"dtype": torch.bfloat16}, {"subfolder": "inner", "variant": "v"}
ways = [("m", {}), ("m", half), ("m", {"dtype": "float64", "output_loading_info": True}), ("outer", half | inner)]
ways += [("m", {"dtype": torch.float32})]
for folder, kwargs in ways:
    found = AutoModelForCausalLM.from_pretrained(folder, **kwargs)
    model = found[0] if isinstance(found, tuple) else found
    print(model.dtype, out(model))
    assert not IS_SHARED or oc.explain(model).private < 1 << 20, oc.explain(model)
print(out(AutoModelForCausalLM.from_pretrained("m", **half, disable_mmap=True)))
if IS_SHARED:
    import onecopy.auto
    found = [(Path(call.path).name, call.reason or call.shared) for call in onecopy.auto.calls()]
    nbytes = sum(one.numel() * one.element_size() for one in model.parameters())
    shared = [("m", nbytes // 2), ("m", 2 * nbytes), ("inner", nbytes // 2)]
    assert found == [*shared, ("m", "disable_mmap=True")], found
"""

NAMES = """
model = llama()
model.save_pretrained("m")
state, config = model.state_dict(), model.config
again = type(model).from_pretrained(pretrained_model_name_or_path="m", dtype=torch.float32)
none = type(model).from_pretrained(pretrained_model_name_or_path=None, config=config, state_dict=state)
none_either = type(model).from_pretrained(None, config=config, state_dict=state)
for other in (again, none, none_either):
    assert all(torch.equal(state[name], tensor) for name, tensor in other.state_dict().items())
assert not IS_SHARED or oc.explain(again).private < 1 << 20
attempt("nothing", type(model).from_pretrained)
"""

PROGRAMS = {
    "architectures": (ARCHITECTURES, True),
    "uses": (USES, True),
    "writes": (WRITES, False),
    "casts": (CASTS, True),
    "names": (NAMES, False),
}
"""Programs, and whether anything of them is shared by `onecopy run`, and not by transformers itself."""


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    folder = tmp_path_factory.mktemp("same")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ONECOPY_CACHE", str(folder / "store"))
        return same_answers({name: code for name, (code, _) in PROGRAMS.items()}, folder, prelude=PRELUDE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_models_prints_the_same(same, name):
    assert bool(same(name).shared) == PROGRAMS[name][1]
