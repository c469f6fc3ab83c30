"""Write a model that was tuned here as a folder that `open_checkpoint` reads; new tokenizers."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.model.hf_config import LLAMA_LIKE, describe
from tacit.llm.model.machine import extra
from tacit.llm.model.tensor_names import GPT2, Layout, kinds_of
from tacit.llm.model.tokenizer import Tokenizer

_START, _END = "<|start|>", "<|end|>"
_GPT2 = "transformer."  # before every name but that of the output


def save_model(folder: Path, model: LanguageModel, tokenizer: Tokenizer) -> None:
    """Write weights, architecture and tokenizer as Hugging Face's libraries read them.

    A model that none of their own architectures computes is written under our names of tensors,
    with a ``model_type`` of "tacit": `open_checkpoint` reads both, other programs the first alone.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = write_config(model)
    if written is None:
        config, weights = _own(model)
    else:
        config, layout, biased = written
        weights = scatter(model, layout, biased)
        if layout is GPT2:
            weights = {n if n.startswith("lm_head") else _GPT2 + n: w for n, w in weights.items()}
    save_file = extra("safetensors.torch").save_file
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config |= {
        "bos_token_id": _ids(tokenizer.starts),
        "eos_token_id": _ids(sorted(tokenizer.stops)),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    _with_starts(tokenizer).save(str(folder / "tokenizer.json"))
    settings = {
        **tokenizer.special,
        "add_bos_token": bool(tokenizer.starts),
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    if tokenizer.template is not None:
        settings["chat_template"] = tokenizer.template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _own(model: LanguageModel) -> tuple[dict[str, Any], dict[str, Tensor]]:
    weights = {
        f"{name}.weight" if name in ("embed", "positions") else name: weight.contiguous()
        for name, weight in model.weights.items()
        if not (name == "output.weight" and model.architecture.tied_output)
    }
    return {"model_type": "tacit", "architecture": asdict(model.architecture)}, weights


def _ids(ids: Sequence[int]) -> int | list[int] | None:
    """Return one id as a number, as other programs want it."""
    return list(ids) if len(ids) > 1 else next(iter(ids), None)


def _with_starts(tokenizer: Tokenizer) -> Any:  # a tokenizers.Tokenizer; the library has no types
    """Return an engine that puts the first ids itself, for programs that know no others."""
    library = extra("tokenizers")
    engine = library.Tokenizer.from_str(tokenizer.engine.to_str())
    if tokenizer.starts and engine.post_processor is None:
        names = [(engine.id_to_token(one), one) for one in tokenizer.starts]
        before = " ".join(name for name, _ in names)
        engine.post_processor = library.processors.TemplateProcessing(
            single=f"{before} $A", pair=f"{before} $A $B", special_tokens=names
        )
    return engine


def train_tokenizer(texts: Iterable[str], *, size: int) -> Tokenizer:
    """Learn a byte-level vocabulary from public texts; every text of any script can be spelled."""
    library = extra("tokenizers")
    engine = library.Tokenizer(library.models.BPE())
    before = library.pre_tokenizers
    engine.pre_tokenizer = before.ByteLevel(add_prefix_space=False, use_regex=False)
    engine.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[_START, _END],
        initial_alphabet=before.ByteLevel.alphabet(),
        show_progress=False,
    )
    engine.train_from_iterator((one for text in texts for one in text), trainer)
    return Tokenizer(
        engine=engine,
        starts=(engine.token_to_id(_START),),
        stops=frozenset([engine.token_to_id(_END)]),
        template=None,
        special={"bos_token": _START, "eos_token": _END},
    )


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


def write_config(
    model: LanguageModel,
) -> tuple[dict[str, Any], Layout, Collection[str]] | None:  # the first becomes JSON
    """Say what config.json says of a model as one of Hugging Face's, and how its tensors lie there.

    Returns:
        The settings, the layout, and which parts have a bias; None if none of theirs computes the
        same.
    """
    kind = _kind(model)
    if kind is None:
        return None
    a = model.architecture
    config = _gpt2(a) if kind == "gpt2" else _llama(a, kind)
    config |= {"architectures": [_CLASSES[kind]], "dtype": "float32", "pad_token_id": None}
    if describe(config)[0] != a:  # a number that their configuration cannot say
        return None
    biased = {"q", "k", "v"} if kind in ("qwen2", "glm", "glm4") else _ALL
    return config, LLAMA_LIKE.get(kind, GPT2), biased


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
