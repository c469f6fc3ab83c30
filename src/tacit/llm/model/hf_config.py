"""What a ``config.json`` beside a checkpoint says about its architecture."""

import math
from collections.abc import Iterator, Mapping
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
# Settings that change no answer: records, training, sampling, heads that are not read, and what
# earlier or later versions of the others' libraries write beside the setting that is read.
_SILENT_NAMES = """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path architectures
    attention_dropout attn_implementation attn_pdrop auto_map bad_words_ids begin_suppress_tokens
    bos_token_id cache_implementation chunk_size_feed_forward classifier_dropout
    decoder_start_token_id diversity_penalty do_sample dtype early_stopping embd_pdrop
    encoder_no_repeat_ngram_size eos_token_id exponential_decay_length_penalty finetuning_task
    forced_bos_token_id forced_eos_token_id gmask_token_id gradient_checkpointing hidden_dropout
    id2label initializer_factor initializer_range is_decoder is_encoder_decoder keys_to_ignore
    keys_to_ignore_at_inference label2id layer_types length_penalty mask_token_id max_length
    max_window_layers min_length model_type n_ctx name_or_path no_repeat_ngram_size num_beam_groups
    num_beams num_labels num_return_sequences output_attentions output_hidden_states output_scores
    pad_token_id prefix prefix_projection pretraining_tp problem_type remove_invalid_values
    reorder_and_upcast_attn repetition_penalty resid_pdrop return_dict return_dict_in_generate
    sep_token_id sliding_window summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj suppress_tokens task_specific_params temperature
    tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype torchscript
    transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16 use_cache
"""
_SILENT = frozenset(_SILENT_NAMES.split())


_UNTURNED = frozenset({"original_max_position_embeddings", "type", "rope_type"})


class Noted(Mapping[str, Any]):
    """A table of settings that notes which were looked at, so that none is passed over.

    Args:
        table: parsed settings.
        place: what messages call it.
        silent: settings that change no answer.
    """

    def __init__(self, table: Config, place: str, silent: frozenset[str]) -> None:
        self._table, self._place, self._silent = table, place, silent
        self._seen: set[str] = set()

    def __getitem__(self, key: str) -> Any:  # checked where it is used
        self._seen.add(key)
        return self._table[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def refuse_rest(self) -> None:
        """Refuse a setting with a value that nobody looked at and that may change answers."""
        for key, value in self._table.items():
            if key not in self._seen and key not in self._silent and value not in (None, {}, []):
                raise DataError(
                    f"{self._place}: {key} = {value!r} is a setting that tacit does not know, and "
                    "it may change what the model answers; take it out if it does not"
                )


def describe(config: Config) -> tuple[Architecture, Layout]:
    """Read an architecture from a configuration.

    Raises:
        DataError: an architecture or a setting that is not known here, or a value that is missing.
    """
    noted = Noted(config, "config", _SILENT)
    found = _describe(noted)
    noted.refuse_rest()
    return found


def _describe(config: Config) -> tuple[Architecture, Layout]:
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
    for key in ("use_mrope", "add_cross_attention"):
        _need(config, key, (False, None))
    context = whole(config, "max_position_embeddings")
    if not is_gemma and config.get("use_sliding_window", kind == "mistral"):
        context = min(context, whole(config, "sliding_window", context))
    width, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    head_dim = whole(config, "head_dim", 256 if is_gemma else width // heads)
    biases = [config.get("attention_bias"), config.get("mlp_bias")]
    part, rope = _rope(config)
    settings: dict[str, Any] = {"activation": "swiglu", **rope}  # checked by Architecture
    if kind == "qwen3":
        settings["has_qk_norm"] = True
    if kind in ("glm", "glm4"):
        turned = int(head_dim * (0.5 if part is None else part))
        settings |= {"rotary_dim": turned, "has_post_norm": kind == "glm4"}
    elif part not in (1, None):
        raise DataError(f"config: partial_rotary_factor must be 1 for {kind}, got {part!r}")
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
        has_bias=kind == "qwen2" or any(biases),
        **settings,
    )


def _rope(config: Config) -> tuple[float | None, dict[str, Any]]:
    """Read the part of a head that turns, and how fast: as it is, slowed down, or as in LLaMA 3."""
    tables = [config.get(key) or {} for key in ("rope_scaling", "rope_parameters")]
    if tables[0] and tables[1] and tables[0] != tables[1]:
        raise DataError("config: rope_scaling and rope_parameters must not contradict each other")
    scaling = tables[0] or tables[1]
    if not isinstance(scaling, Mapping):
        raise DataError(f"config: rope_scaling must be a table, got {scaling!r}")
    out: dict[str, Any] = {}
    whole_layers = scaling.get("full_attention")
    if isinstance(whole_layers, Mapping):  # one table for local layers, one for the others
        found = scaling.get("sliding_attention") or {}
        if not isinstance(found, Mapping):
            raise DataError(f"config: sliding_attention must be a table, got {found!r}")
        local = Noted(found, "config: rope_parameters", _UNTURNED)
        out["local_theta"] = number(local, "rope_theta", 10000.0)
        _need(local, "rope_type", ("default", None))
        local.refuse_rest()
        scaling = whole_layers
    scaling = Noted(scaling, "config: rope_parameters", _UNTURNED)
    top = config.get("partial_rotary_factor")
    part = None if top is None else number(config, "partial_rotary_factor")
    if scaling.get("partial_rotary_factor") is not None:
        inner = number(scaling, "partial_rotary_factor")
        if part not in (None, inner):
            raise DataError(f"config: partial_rotary_factor is {part!r} and {inner!r}: wanted one")
        part = inner
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
    scaling.refuse_rest()
    return part, out


def _gemma(config: Config, width: int) -> dict[str, Any]:
    for key in ("final_logit_softcapping", "attn_logit_softcapping"):
        _need(config, key, (None,))
    _need(config, "use_bidirectional_attention", (False, None))
    _need(config, "hidden_activation", ("gelu_pytorch_tanh", None))
    pattern = whole(config, "_sliding_window_pattern", 6)
    pattern = whole(config, "sliding_window_pattern", pattern)
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
    _need(config, "scale_attn_weights", (True, False, None))
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
        score_scale=1.0 if config.get("scale_attn_weights") is False else 0.0,
    )


def _chatglm(config: Config) -> Architecture:
    _need(config, "position_encoding_2d", (True, None))
    _need(config, "pre_seq_len", (None,))
    _need(config, "quantization_bit", (0, None))
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
