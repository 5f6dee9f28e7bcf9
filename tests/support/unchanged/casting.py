"""A model of transformers that is cast when it is loaded: python casting.py FOLDER [make]; prints an answer."""

import sys

import torch
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)


def main(folder: str, *make: str) -> None:
    if make:
        torch.manual_seed(0)
        config = GPT2Config(n_embd=512, n_layer=6, n_head=8, vocab_size=8000, bos_token_id=None, eos_token_id=None)
        GPT2LMHeadModel(config).save_pretrained(folder)
        return
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        print("answer", model(torch.arange(8)[None]).logits.float().sum().item(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
