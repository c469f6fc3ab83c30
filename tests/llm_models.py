"""Small random models of every architecture, for tests."""

import json
from dataclasses import replace

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models

from tacit.llm import Architecture, LanguageModel, shapes

LLAMA = Architecture(
    family="llama",
    layers=2,
    width=16,
    heads=4,
    kv_heads=2,
    head_dim=8,
    ffn=24,
    vocab=64,
    context=32,
    norm="rms",
    norm_eps=1e-5,
    activation="swiglu",
    positions="rotary",
    rope_theta=10000.0,
    tied_output=True,
    has_bias=False,
)
GPT2 = replace(
    LLAMA,
    family="gpt2",
    kv_heads=4,
    head_dim=4,
    norm="layer",
    activation="gelu_tanh",
    positions="learned",
    has_bias=True,
)
CHATGLM = replace(GPT2, family="chatglm", positions="rotary2d", tied_output=False)
ARCHITECTURES = {
    "llama": LLAMA,
    "qwen2": replace(LLAMA, has_bias=True, tied_output=False),
    "gpt2": GPT2,
    "chatglm": CHATGLM,
}


def make_model(architecture, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) > 1 else 1.0)
        for name, shape in shapes(architecture).items()
    }
    if architecture.tied_output:
        weights["output.weight"] = weights["embed"]
    return LanguageModel(architecture=architecture, weights=weights)


LLAMA_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "vocab_size": 64,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}


def llama_tensors(model):
    names = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
    names |= {p: f"self_attn.{p}_proj" for p in "qkvo"}
    names |= {p: f"mlp.{p}_proj" for p in ("gate", "up", "down")}
    out = {"model.embed_tokens.weight": model.weights["embed"]}
    for key, w in model.weights.items():
        if key.startswith("layers."):
            _, i, part, kind = key.split(".")
            if kind == "bias" and part not in "qkv":
                continue
            out[f"model.layers.{i}.{names[part]}.{kind}"] = w
    out["model.norm.weight"] = model.weights["norm.weight"]
    if not model.architecture.tied_output:
        out["lm_head.weight"] = model.weights["output.weight"]
    return out


def write_model(folder, *, vocab=64):
    """Write a whole small model with a tokenizer of letters; its texts mean nothing."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "
    config = {**LLAMA_CONFIG, "max_position_embeddings": 256, "eos_token_id": 63}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(llama_tensors(make_model(LLAMA)), folder / "model.safetensors")
    engine = Tokenizer(models.BPE({c: i for i, c in enumerate([*letters, "."][:vocab])}, []))
    engine.decoder = decoders.Fuse()
    engine.save(str(folder / "tokenizer.json"))
    return folder
