"""What a ``config.json`` beside a checkpoint says about its architecture."""

from collections.abc import Mapping
from typing import Any

from tacit.errors import DataError
from tacit.llm.architecture import Architecture
from tacit.llm.layout import CHATGLM, GPT2, LLAMA, Layout

Config = Mapping[str, Any]  # parsed JSON: each value is checked where it is used
LLAMA_LIKE = frozenset({"llama", "mistral", "qwen2"})
KNOWN = tuple(sorted({*LLAMA_LIKE, "gpt2", "chatglm"}))


def describe(config: Config) -> tuple[Architecture, Layout]:
    """Read an architecture from a configuration.

    Raises:
        DataError: an architecture or a setting that is not known here, or a value that is missing.
    """
    kind = config.get("model_type")
    if kind is None and "rms_norm_eps" in config:
        kind = "llama"
    if kind in LLAMA_LIKE:
        return _llama(config, has_bias=kind == "qwen2"), LLAMA
    if kind == "gpt2":
        return _gpt2(config), GPT2
    if kind == "chatglm" and "inner_hidden_size" in config:
        return _chatglm(config), CHATGLM
    later = " in its first version (with inner_hidden_size)" if kind == "chatglm" else ""
    raise DataError(f"wanted a model_type of {', '.join(KNOWN)}, got {kind!r}{later}")


def whole(config: Config, key: str, default: int | None = None) -> int:
    """Read a whole number greater than 0."""
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DataError(f"config: {key} must be a whole number of at least 1, got {value!r}")
    return value


def number(config: Config, key: str, default: float | None = None) -> float:
    """Read a number greater than 0."""
    value = config.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise DataError(f"config: {key} must be a number greater than 0, got {value!r}")
    return float(value)


def _llama(config: Config, *, has_bias: bool) -> Architecture:
    _need(config, "hidden_act", ("silu", None))
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    if scaling and scaling.get("rope_type", scaling.get("type")) not in ("default", None):
        raise DataError(f"config: rope_scaling is not supported, got {scaling!r}")
    context = whole(config, "max_position_embeddings")
    if config.get("use_sliding_window", config.get("model_type") == "mistral"):
        context = min(context, whole(config, "sliding_window", context))
    width, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    return Architecture(
        family="llama",
        layers=whole(config, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=whole(config, "num_key_value_heads", heads),
        head_dim=whole(config, "head_dim", width // heads),
        ffn=whole(config, "intermediate_size"),
        vocab=whole(config, "vocab_size"),
        context=context,
        norm="rms",
        norm_eps=number(config, "rms_norm_eps"),
        activation="swiglu",
        positions="rotary",
        rope_theta=number(scaling or config, "rope_theta", number(config, "rope_theta", 10000.0)),
        tied_output=bool(config.get("tie_word_embeddings", False)),
        has_bias=has_bias or bool(config.get("attention_bias") or config.get("mlp_bias")),
    )


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
