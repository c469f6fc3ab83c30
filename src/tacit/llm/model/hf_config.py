"""What a ``config.json`` beside a checkpoint says about its architecture."""

import math
from collections.abc import Mapping
from typing import Any

from tacit.errors import ConfigError, DataError
from tacit.llm.model.architecture import Architecture, shapes
from tacit.llm.model.tensor_names import CHATGLM, GEMMA3, GLM, GLM4, GPT2, LLAMA, QWEN3, Layout

Config = Mapping[str, Any]  # parsed JSON: each value is checked where it is used
LLAMA_LIKE = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": QWEN3,
    "gemma3_text": GEMMA3,
    "glm": GLM,
    "glm4": GLM4,
}
KNOWN = tuple(sorted({*LLAMA_LIKE, "gpt2", "chatglm"}))


def describe(config: Config) -> tuple[Architecture, Layout]:
    """Read an architecture from a configuration.

    Raises:
        DataError: an architecture or a setting that is not known here, or a value that is missing.
    """
    kind = config.get("model_type")
    if kind is None and "rms_norm_eps" in config:
        kind = "llama"
    if kind == "tacit":
        return _own(config)
    if kind in LLAMA_LIKE:
        return _llama(config, kind), LLAMA_LIKE[kind]
    if kind == "gpt2":
        return _gpt2(config), GPT2
    if kind == "chatglm" and "inner_hidden_size" in config:
        return _chatglm(config), CHATGLM
    later = " in its first version (with inner_hidden_size)" if kind == "chatglm" else ""
    raise DataError(f"wanted a model_type of {', '.join(KNOWN)}, got {kind!r}{later}")


def _own(config: Config) -> tuple[Architecture, Layout]:
    """Read an architecture that `save_model` wrote."""
    found = config.get("architecture")
    try:
        architecture = Architecture(**found) if isinstance(found, dict) else None
    except (TypeError, ConfigError) as error:
        raise DataError(f"config: architecture: {error}") from error
    if architecture is None:
        raise DataError("config: a model_type of tacit needs a table architecture")
    parts = {name.split(".")[2] for name in shapes(architecture) if name.startswith("layers.0.")}
    positions = "positions" if architecture.positions == "learned" else ""
    return architecture, Layout(
        embed="embed",
        norm="norm",
        output="output",
        block="layers.{}.",
        parts={part: part for part in sorted(parts)},
        positions=positions,
    )


def whole(config: Config, key: str, default: int | None = None) -> int:
    """Read a whole number greater than 0."""
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DataError(f"config: {key} must be a whole number of at least 1, got {value!r}")
    return value


def number(config: Config, key: str, default: float | None = None) -> float:
    """Read a number greater than 0."""
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise DataError(f"config: {key} must be a number greater than 0, got {value!r}")
    return float(value)


def _llama(config: Config, kind: str) -> Architecture:
    is_gemma = kind == "gemma3_text"
    _need(config, "hidden_act", ("silu", None))
    context = whole(config, "max_position_embeddings")
    if not is_gemma and config.get("use_sliding_window", kind == "mistral"):
        context = min(context, whole(config, "sliding_window", context))
    width, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    head_dim = whole(config, "head_dim", 256 if is_gemma else width // heads)
    settings: dict[str, Any] = {"activation": "swiglu", **_rope(config)}  # checked by Architecture
    if kind == "qwen3":
        settings["has_qk_norm"] = True
    if kind in ("glm", "glm4"):
        part = number(config, "partial_rotary_factor", 0.5)
        settings |= {"rotary_dim": int(head_dim * part), "has_post_norm": kind == "glm4"}
    if is_gemma:
        settings |= _gemma(config, width)
    return Architecture(
        family="llama",
        layers=whole(config, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=whole(config, "num_key_value_heads", heads),
        head_dim=head_dim,
        ffn=whole(config, "intermediate_size"),
        vocab=whole(config, "vocab_size"),
        context=context,
        norm="rms",
        norm_eps=number(config, "rms_norm_eps", 1e-6 if is_gemma else None),
        positions="rotary",
        tied_output=bool(config.get("tie_word_embeddings", is_gemma)),
        has_bias=kind == "qwen2" or bool(config.get("attention_bias") or config.get("mlp_bias")),
        **settings,
    )


def _rope(config: Config) -> dict[str, Any]:
    """Read the speeds of rotary positions: as they are, slowed down alike, or as in LLaMA 3."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(scaling, Mapping):
        raise DataError(f"config: rope_scaling must be a table, got {scaling!r}")
    out: dict[str, Any] = {}
    whole_layers = scaling.get("full_attention")
    if isinstance(whole_layers, Mapping):  # one table for local layers, one for the others
        local = scaling.get("sliding_attention") or {}
        out["local_theta"] = number(local, "rope_theta", 10000.0)
        scaling = whole_layers
    default = 1e6 if config.get("model_type") == "gemma3_text" else 10000.0
    out["rope_theta"] = number(scaling, "rope_theta", number(config, "rope_theta", default))
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        out["rope_factor"] = number(scaling, "factor")
    elif kind == "llama3":
        out["rope_factor"] = number(scaling, "factor")
        out["rope_low"] = number(scaling, "low_freq_factor")
        out["rope_high"] = number(scaling, "high_freq_factor")
        out["rope_context"] = whole(scaling, "original_max_position_embeddings")
    elif kind not in ("default", None):
        raise DataError(f"config: rope_scaling must be linear or llama3, got {dict(scaling)!r}")
    return out


def _gemma(config: Config, width: int) -> dict[str, Any]:
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        _need(config, key, (None,))
    _need(config, "use_bidirectional_attention", (False, None))
    _need(config, "hidden_activation", ("gelu_pytorch_tanh", None))
    pattern = whole(config, "sliding_window_pattern", 6)
    kinds = config.get("layer_types")
    if kinds is not None:
        wanted = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
        pattern = wanted[0] + 1 if wanted else len(kinds) + 1
        if wanted != [i for i in range(len(kinds)) if (i + 1) % pattern == 0]:
            raise DataError("config: layer_types must repeat: local layers, then one that is not")
    local = config.get("rope_local_base_freq")
    return {
        "activation": "geglu_tanh",
        "has_qk_norm": True,
        "has_post_norm": True,
        "embed_scale": math.sqrt(width),
        "score_scale": number(config, "query_pre_attn_scalar", 256) ** -0.5,
        "window": whole(config, "sliding_window", 4096),
        "global_every": pattern,
        **({} if local is None else {"local_theta": number(config, "rope_local_base_freq")}),
    }


def _gpt2(config: Config) -> Architecture:
    activation = config.get("activation_function", "gelu_new")
    if activation not in ("gelu", "gelu_new", "gelu_pytorch_tanh"):
        raise DataError(f"config: activation_function must be a gelu, got {activation!r}")
    for key in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        _need(config, key, (False, None))
    width, heads = whole(config, "n_embd"), whole(config, "n_head")
    return Architecture(
        family="gpt2",
        layers=whole(config, "n_layer"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        ffn=whole(config, "n_inner", 4 * width),
        vocab=whole(config, "vocab_size"),
        context=whole(config, "n_positions"),
        norm="layer",
        norm_eps=number(config, "layer_norm_epsilon", 1e-5),
        activation="gelu" if activation == "gelu" else "gelu_tanh",
        positions="learned",
        rope_theta=10000.0,
        tied_output=bool(config.get("tie_word_embeddings", True)),
        has_bias=True,
    )


def _chatglm(config: Config) -> Architecture:
    _need(config, "position_encoding_2d", (True, None))
    _need(config, "pre_seq_len", (None,))
    width, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    return Architecture(
        family="chatglm",
        layers=whole(config, "num_layers"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_dim=width // heads,
        ffn=whole(config, "inner_hidden_size"),
        vocab=whole(config, "vocab_size"),
        context=whole(config, "max_sequence_length", 2048),
        norm="layer",
        norm_eps=number(config, "layernorm_epsilon", 1e-5),
        activation="gelu_tanh",
        positions="rotary2d",
        rope_theta=10000.0,
        tied_output=bool(config.get("tie_word_embeddings", False)),
        has_bias=True,
    )


def _need(config: Config, key: str, allowed: tuple[object, ...]) -> None:
    if config.get(key) not in allowed:
        raise DataError(f"config: {key} must be {allowed[0]!r}, got {config[key]!r}")
