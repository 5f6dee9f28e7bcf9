"""32 architectures with random weights: as transformers loads them, bit for bit, whatever type is asked for."""

import inspect
from typing import Any

import pytest
from tests.support.rounds import rows

import onecopy as oc

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

# What the configurations of most architectures call these sizes; each takes those that it has.
SIZES = {
    96: "vocab_size",
    0: "pad_token_id",
    1: "bos_token_id num_experts_per_tok",
    2: "eos_token_id num_hidden_layers num_layers n_layer n_layers encoder_layers decoder_layers "
    "num_key_value_heads num_local_experts num_experts",
    32: "hidden_size d_model n_embd emb_dim dim embedding_size word_embed_proj_dim moe_intermediate_size",
    64: "intermediate_size d_ff hidden_dim encoder_ffn_dim decoder_ffn_dim ffn_dim max_position_embeddings n_positions",
    8: "d_kv head_dim rotary_dim patch_size",
    4: "num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads",
    16: "image_size",
}
SMALL: dict[str, Any] = {name: size for size, names in SIZES.items() for name in names.split()}
SMALL["attention_types"] = [[["global", "local"], 1]]
NAMES = """
AlbertModel BartModel BertModel BloomForCausalLM CohereForCausalLM DeiTModel DistilBertModel ElectraModel
FalconForCausalLM GPT2LMHeadModel GPTJForCausalLM GPTNeoForCausalLM GPTNeoXForCausalLM Gemma2ForCausalLM
GemmaForCausalLM LlamaForCausalLM MBartModel MPNetModel MambaForCausalLM MistralForCausalLM MixtralForCausalLM
OPTForCausalLM PegasusModel Phi3ForCausalLM PhiForCausalLM Qwen2ForCausalLM Qwen3ForCausalLM RobertaModel
StableLmForCausalLM T5ForConditionalGeneration UMT5Model ViTModel
"""
ARCHITECTURES = NAMES.split()
EACH_TIME = {"BertModel", "GPT2LMHeadModel", "LlamaForCausalLM", "MixtralForCausalLM", "T5ForConditionalGeneration"}
TYPES = ["float32", "float16", "bfloat16"]


def small_model(name: str) -> Any:
    model_class = getattr(transformers, name)
    taken = inspect.signature(model_class.config_class.__init__).parameters
    config = model_class.config_class(**{key: value for key, value in SMALL.items() if key in taken})
    torch.manual_seed(1)
    return model_class(config)


def outputs_of(model: Any) -> list[Any]:
    ids = torch.arange(3, 19).reshape(2, 8)
    given = {"pixel_values": torch.linspace(-1, 1, 2 * 3 * 16 * 16).reshape(2, 3, 16, 16).to(model.dtype)}
    if model.main_input_name != "pixel_values":
        given = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        given["decoder_input_ids"] = ids
    with torch.no_grad():
        return [one for one in model(**given, return_dict=False) if isinstance(one, torch.Tensor)]


def private_weights(model: Any) -> set[str]:
    """Return the names of the parameters that are on no file: transformers puts these together from others."""
    names = {name for name, _ in model.named_parameters()}
    return {one.name for one in oc.explain(model).findings if one.kind == "heap"} & names


def bits(tensor: Any) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


@pytest.mark.filterwarnings("ignore:all .* of weights are in private")
@pytest.mark.parametrize("sharded", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["single", "sharded"])
@pytest.mark.parametrize("name", rows(ARCHITECTURES, EACH_TIME))
def test_an_architecture_is_as_transformers_loads_it(name, sharded, tmp_path):
    made = small_model(name)
    for stored in ("float32", "bfloat16"):
        folder = tmp_path / stored
        made.to(getattr(torch, stored)).save_pretrained(folder, max_shard_size="30kB" if sharded else "1GB")
        assert (len(list(folder.glob("*.safetensors"))) > 1) == sharded
        converted = private_weights(type(made).from_pretrained(folder, dtype=getattr(torch, stored)))
        for wanted in TYPES:
            theirs = type(made).from_pretrained(folder, dtype=getattr(torch, wanted))
            ours = oc.transformers.from_pretrained(type(made), folder, dtype=wanted, store=tmp_path / "store")
            expected, found = theirs.state_dict(), ours.state_dict()
            assert {key: one.dtype for key, one in found.items()} == {key: one.dtype for key, one in expected.items()}
            assert [key for key in found if bits(found[key]) != bits(expected[key])] == []
            assert list(map(bits, outputs_of(ours))) == list(map(bits, outputs_of(theirs)))
            own_type = {key for key, one in expected.items() if one.dtype != getattr(torch, wanted)}
            assert private_weights(ours) <= converted | own_type
