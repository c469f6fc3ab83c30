"""A model that was tuned here as one of Hugging Face's own: its ``config.json`` and its tensors."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.hf_config import LLAMA_LIKE, describe
from tacit.llm.model.tensor_names import GPT2, Layout, kinds_of

_ALL = frozenset({"q", "k", "v", "o", "gate", "up", "down"})
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm": "GlmForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
}


@dataclass(frozen=True, kw_only=True)
class Written:
    """How others call a model: what its config.json says, its tensors, and which have a bias."""

    config: dict[str, Any]  # becomes JSON
    layout: Layout
    biased: Collection[str]


def write_config(model: LanguageModel) -> Written | None:
    """Describe a model as one of Hugging Face's; None if none of theirs computes the same."""
    kind = _kind(model)
    if kind is None:
        return None
    a = model.architecture
    config = _gpt2(a) if kind == "gpt2" else _llama(a, kind)
    config |= {"architectures": [_CLASSES[kind]], "dtype": "float32", "pad_token_id": None}
    if describe(config)[0] != a:  # a number that their configuration cannot say
        return None
    biased = {"q", "k", "v"} if kind in ("qwen2", "glm", "glm4") else _ALL
    return Written(config=config, layout=LLAMA_LIKE.get(kind, GPT2), biased=biased)


def _kind(model: LanguageModel) -> str | None:
    a = model.architecture
    if a.family != "llama":
        return "gpt2" if a.family == "gpt2" else None
    is_plain = not a.has_bias or not any(
        bool(model.weights[f"layers.{i}.{part}.bias"].any())
        for i in range(a.layers)
        for part in ("o", "gate", "up", "down")
    )
    if a.has_qk_norm:
        return "gemma3_text" if a.has_post_norm else "qwen3"
    if a.rotary_dim:  # theirs have biases on q, k and v alone
        found = "glm4" if a.has_post_norm else "glm"
        return found if is_plain else None
    return "qwen2" if a.has_bias and is_plain else "llama"


def _llama(a: Architecture, kind: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_type": kind,
        "hidden_size": a.width,
        "intermediate_size": a.ffn,
        "num_hidden_layers": a.layers,
        "num_attention_heads": a.heads,
        "num_key_value_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "vocab_size": a.vocab,
        "max_position_embeddings": a.context,
        "rms_norm_eps": a.norm_eps,
        "rope_theta": a.rope_theta,
        "tie_word_embeddings": a.tied_output,
        "attention_bias": a.has_bias,
        "mlp_bias": a.has_bias and kind == "llama",
        "hidden_act": "silu",
    }
    if a.rope_factor != 1 or a.rope_context:
        config["rope_scaling"] = _scaling(a)
    if a.rotary_dim:
        config["partial_rotary_factor"] = a.rotary_dim / a.head_dim
    return config if kind != "gemma3_text" else _gemma(a, config)


def _scaling(a: Architecture) -> dict[str, Any]:
    if not a.rope_context:
        return {"rope_type": "linear", "factor": a.rope_factor}
    return {
        "rope_type": "llama3",
        "factor": a.rope_factor,
        "low_freq_factor": a.rope_low,
        "high_freq_factor": a.rope_high,
        "original_max_position_embeddings": a.rope_context,
    }


def _gemma(a: Architecture, config: dict[str, Any]) -> dict[str, Any]:
    del config["hidden_act"]
    kinds = ("sliding_attention", "full_attention")
    return config | {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": round(a.query_scale**-2),
        "sliding_window": a.window,
        "layer_types": [kinds[not a.window_of(i)] for i in range(a.layers)],
        "rope_local_base_freq": a.local_theta,
    }


def _gpt2(a: Architecture) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_embd": a.width,
        "n_inner": a.ffn,
        "n_layer": a.layers,
        "n_head": a.heads,
        "n_positions": a.context,
        "vocab_size": a.vocab,
        "layer_norm_epsilon": a.norm_eps,
        "activation_function": "gelu" if a.activation == "gelu" else "gelu_new",
        "tie_word_embeddings": a.tied_output,
        "scale_attn_weights": not a.score_scale,
    }


def scatter(model: LanguageModel, layout: Layout, biased: Collection[str]) -> dict[str, Tensor]:
    """Give every tensor the name and form of a checkpoint: `tensor_names.gather`, backwards.

    Parts of a block that are not ``biased`` have no bias there: ours must be zero.
    """
    a, weights = model.architecture, model.weights
    out = {f"{layout.embed}.weight": weights["embed"]}
    if layout.positions:
        out[f"{layout.positions}.weight"] = weights["positions"]
    if not a.tied_output:
        out[f"{layout.output}.weight"] = weights["output.weight"]
    for kind in kinds_of(a.norm == "layer"):
        out[f"{layout.norm}.{kind}"] = weights[f"norm.{kind}"] - layout.norm_offset
    for i in range(a.layers):
        here, there = f"layers.{i}.", layout.block.format(i)
        own = {name[len(here) :]: w for name, w in weights.items() if name.startswith(here)}
        out |= {there + name: w for name, w in _scatter_block(a, layout, own, biased).items()}
    return {name: weight.contiguous() for name, weight in out.items()}


def _scatter_block(
    a: Architecture, layout: Layout, own: dict[str, Tensor], biased: Collection[str]
) -> dict[str, Tensor]:
    if layout.is_paired:
        for part, heads in {"q": a.heads, "k": a.kv_heads}.items():
            for key in (key for key in own if key.split(".")[0] == part):
                own[key] = _pair(own[key], heads)
    if layout.is_transposed:
        own = {key: w.T if w.ndim == 2 else w for key, w in own.items()}
    out = {}
    for part, name in layout.parts.items():
        is_norm = "norm" in part
        for kind in kinds_of(a.norm == "layer" if is_norm else a.has_bias and part in biased):
            w = own[f"{part}.{kind}"]
            out[f"{name}.{kind}"] = w - layout.norm_offset if is_norm else w
    if layout.fused:
        for kind in kinds_of(a.has_bias):
            out[f"{layout.fused}.{kind}"] = torch.cat([own[f"{p}.{kind}"] for p in "qkv"], -1)
    if layout.fused_gate:
        out[f"{layout.fused_gate}.weight"] = torch.cat([own["gate.weight"], own["up.weight"]])
    return out


def _pair(w: Tensor, heads: int) -> Tensor:
    """Make the two features that turn together neighbours."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).transpose(1, 2).reshape(w.shape)
