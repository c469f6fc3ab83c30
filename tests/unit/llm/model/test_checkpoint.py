"""Checkpoints of every kind, written by the test in the form that others write them in."""

import json
import sys
from contextlib import suppress
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file
from tokenizers import Tokenizer, models

from support.llm import CHATGLM, GPT2, LLAMA, LLAMA_CONFIG, llama_tensors, make_model
from tacit.errors import ConfigError, DataError, TacitError
from tacit.llm import ChatProtocol, LanguageModel, logits, open_checkpoint
from tacit.llm.backend.chat_file import ROLES
from tacit.llm.model import gguf as gguf_file

QWEN2 = replace(LLAMA, has_bias=True, tied_output=False)
QWEN2_CONFIG = {**LLAMA_CONFIG, "model_type": "qwen2", "tie_word_embeddings": False}
GPT2_CONFIG = {
    "model_type": "gpt2",
    "n_layer": 2,
    "n_embd": 16,
    "n_head": 4,
    "n_inner": 24,
    "vocab_size": 64,
    "n_positions": 32,
}
CHATGLM_CONFIG = {
    "model_type": "chatglm",
    "num_layers": 2,
    "hidden_size": 16,
    "num_attention_heads": 4,
    "inner_hidden_size": 24,
    "vocab_size": 64,
    "max_sequence_length": 32,
    "position_encoding_2d": True,
}


def gpt2_tensors(model):
    names = {"norm1": "ln_1", "norm2": "ln_2", "o": "attn.c_proj"}
    names |= {"up": "mlp.c_fc", "down": "mlp.c_proj"}
    w = model.weights
    out = {"transformer.wte.weight": w["embed"], "transformer.wpe.weight": w["positions"]}
    for kind in ("weight", "bias"):
        out[f"transformer.ln_f.{kind}"] = w[f"norm.{kind}"]
        for i in range(2):
            for part, name in names.items():
                out[f"transformer.h.{i}.{name}.{kind}"] = turned(w[f"layers.{i}.{part}.{kind}"])
            fused = torch.cat([w[f"layers.{i}.{p}.{kind}"] for p in "qkv"])
            out[f"transformer.h.{i}.attn.c_attn.{kind}"] = turned(fused)
            out[f"transformer.h.{i}.attn.bias"] = torch.ones(1, 1, 32, 32)
    return {name: tensor.contiguous() for name, tensor in out.items()}


def turned(w):
    return w.T if w.ndim == 2 else w


def chatglm_tensors(model):
    names = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
    names |= {"o": "attention.dense", "up": "mlp.dense_h_to_4h", "down": "mlp.dense_4h_to_h"}
    w = model.weights
    out = {
        "transformer.word_embeddings.weight": w["embed"],
        "lm_head.weight": w["output.weight"],
    }
    for kind in ("weight", "bias"):
        out[f"transformer.final_layernorm.{kind}"] = w[f"norm.{kind}"]
        for i in range(2):
            for part, name in names.items():
                out[f"transformer.layers.{i}.{name}.{kind}"] = w[f"layers.{i}.{part}.{kind}"]
            heads = [w[f"layers.{i}.{p}.{kind}"].split(4) for p in "qkv"]
            rows = [part for head in zip(*heads, strict=True) for part in head]
            out[f"transformer.layers.{i}.attention.query_key_value.{kind}"] = torch.cat(rows)
    return out


def without_small_biases(model):
    """Zero the biases that Qwen2 has not."""
    weights = {
        key: torch.zeros_like(w) if key.endswith(".bias") and key.split(".")[2] not in "qkv" else w
        for key, w in model.weights.items()
    }
    return replace(model, weights=weights)


CASES = {
    "llama": (LLAMA_CONFIG, LLAMA, llama_tensors),
    "qwen2": (QWEN2_CONFIG, QWEN2, llama_tensors),
    "gpt2": (GPT2_CONFIG, GPT2, gpt2_tensors),
    "chatglm": (CHATGLM_CONFIG, CHATGLM, chatglm_tensors),
}


LAST_UP = ("1.mlp.up_proj.weight", "1.mlp.c_fc.weight", "1.mlp.dense_h_to_4h.weight")


def own_name(name):
    """Name a tensor as the message does: of GPT-2 there are files with and without a prefix."""
    return name.replace("transformer.h.", "h.")


def same(found, wanted, tolerance=0.0):
    assert found.architecture == wanted.architecture
    assert found.weights.keys() == wanted.weights.keys()
    for name, w in wanted.weights.items():
        torch.testing.assert_close(found.weights[name], w, atol=tolerance, rtol=0, msg=name)


@pytest.fixture(params=CASES)
def case(request):
    config, architecture, rename = CASES[request.param]
    model = make_model(architecture)
    return config, without_small_biases(model) if request.param == "qwen2" else model, rename


def write(folder, config, tensors):
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_shards_are_read_as_one(tmp_path):
    model = make_model(LLAMA)
    tensors = list(llama_tensors(model).items())
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    shards = {"a.safetensors": dict(tensors[:5]), "b.safetensors": dict(tensors[5:])}
    for name, part in shards.items():
        save_file(part, tmp_path / name)
    index = {"weight_map": {key: name for name, part in shards.items() for key in part}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    same(open_checkpoint(tmp_path).load(), model)
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(DataError, match=r"names the shard b\.safetensors, which is not there"):
        open_checkpoint(tmp_path).load()


def test_bytes_with_a_scale_are_numbers(tmp_path):
    tensors = llama_tensors(make_model(LLAMA))
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[name] = torch.arange(24 * 16, dtype=torch.int32).reshape(24, 16).to(torch.int8)
    tensors[name + ".__scale"] = torch.tensor(0.5)
    tensors[name + ".__zero"] = torch.tensor(3, dtype=torch.int8)
    found = open_checkpoint(write(tmp_path, LLAMA_CONFIG, tensors)).load()
    assert torch.equal(found.weights["layers.0.up.weight"], (tensors[name].float() - 3) * 0.5)


def test_a_missing_tensor_is_refused_by_its_own_name(tmp_path, case):
    config, model, rename = case
    tensors = rename(model)
    gone = next(name for name in tensors if name.endswith(LAST_UP))
    del tensors[gone]
    with pytest.raises(DataError, match=f"no tensor '{own_name(gone)}'"):
        open_checkpoint(write(tmp_path, config, tensors)).load()


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("1.self_attn.k_proj", (32, 16), r"'layers\.1\.k\.weight' must have shape \(16, 16\)"),
        ("0.self_attn.q_norm", (8,), r"q_norm\.weight' that we have no use for"),
    ],
)
def test_a_tensor_of_another_shape_or_without_a_use_is_refused(tmp_path, name, shape, words):
    tensors = llama_tensors(make_model(LLAMA)) | {f"model.layers.{name}.weight": torch.zeros(shape)}
    with pytest.raises(DataError, match=words):
        open_checkpoint(write(tmp_path, LLAMA_CONFIG, tensors)).load()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "mamba"}, "wanted a model_type of chatglm, .*gpt2.*got 'mamba'"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling must be linear or llama3"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor must be a number"),
        ({"rope_scaling": [8]}, "rope_scaling must be a table"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers must be a whole number"),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be a number greater than 0"),
    ],
)
def test_an_unknown_architecture_is_refused_by_name(tmp_path, change, words):
    with pytest.raises(DataError, match=words):
        open_checkpoint(write(tmp_path, {**LLAMA_CONFIG, **change}, {}))


def test_safetensors_of_every_family_are_read_as_written_at_once_or_when_wanted(case, tmp_path):
    config, model, rename = case
    opened = open_checkpoint(write(tmp_path, config, rename(model)))
    same(opened.load(), model)
    found = opened.read()
    same(found, model)
    group = found.weights._known[1]
    assert sum(one.nbytes for one in group.values()) < 0.6 * sum(
        one.nbytes for one in model.weights.values()
    )


def test_a_model_that_does_not_fit_is_refused_before_it_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_CONFIG))
    with pytest.raises(DataError, match=r"does not fit: it needs .* GiB .* 0\.0 GiB are free"):
        open_checkpoint(tmp_path).check_memory(1000)


def test_a_model_of_a_billion_weights_fits_16_gib_with_all_three_parties(tmp_path):
    big = {
        "hidden_size": 2048,
        "num_hidden_layers": 22,
        "head_dim": 64,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "intermediate_size": 5632,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_CONFIG, **big}))
    found = open_checkpoint(tmp_path)
    for name in ("sealed", "permuted"):
        ChatProtocol(name=name).check_memory(found, 16 << 30, *ROLES)
        with pytest.raises(DataError, match=r"needs 15\.\d GiB"):
            ChatProtocol(name=name).check_memory(found, 15 << 30, *ROLES)


def test_the_tokenizer_of_another_model_is_refused(tmp_path):
    write(tmp_path, LLAMA_CONFIG, {})
    Tokenizer(models.WordLevel({f"w{i}": i for i in range(50)})).save(
        str(tmp_path / "tokenizer.json")
    )
    with pytest.raises(DataError, match=r"has 50 tokens and the model 64: it is .* of another"):
        open_checkpoint(tmp_path).tokenizer()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 64, b"x" * 999])
def test_a_file_that_is_not_a_model_is_refused(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"model\.gguf: not a whole GGUF file"):
        open_checkpoint(path)


@given(cut=st.integers(0, 6000), place=st.integers(0, 1200), byte=st.integers(0, 255))
def test_a_damaged_gguf_file_is_refused_or_read_but_nothing_else(damaged, cut, place, byte):
    content, path = damaged
    broken = bytearray(content[: len(content) - cut])
    broken[place] = byte
    path.write_bytes(broken)
    with suppress(TacitError):
        open_checkpoint(path).load()


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "m.gguf"
    write_gguf(path, make_model(LLAMA), "llama")
    return path.read_bytes(), path


def test_a_cut_safetensors_file_is_refused(tmp_path):
    write(tmp_path, LLAMA_CONFIG, llama_tensors(make_model(LLAMA)))
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match="not a whole safetensors file"):
        open_checkpoint(tmp_path).load()


def test_a_place_without_a_model_says_how_to_get_one(tmp_path):
    with pytest.raises(DataError, match="tacit model get"):
        open_checkpoint(tmp_path / "nothing")
    with pytest.raises(DataError, match="wanted a GGUF file, or config"):
        open_checkpoint(tmp_path)


GGUF_NAMES = {"norm1": "attn_norm", "norm2": "ffn_norm", "o": "attn_output"}
GGUF_NAMES |= {"gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
GGUF_NAMES |= {part: f"attn_{part}" for part in ("q", "k", "v", "q_norm", "k_norm")}


def paired(w, heads):
    """Order rows as llama.cpp does: the two features that turn together become neighbours."""
    half = len(w) // heads // 2
    order = [
        head * 2 * half + j + side * half
        for head in range(heads)
        for j in range(half)
        for side in (0, 1)
    ]
    return w[order]


def write_gguf(path, model, kind, *, quantised=None, tokens=64, more=()):
    a = model.architecture
    writer = gguf.GGUFWriter(path, kind)
    writer.add_block_count(a.layers)
    writer.add_embedding_length(a.width)
    writer.add_head_count(a.heads)
    writer.add_head_count_kv(a.kv_heads)
    writer.add_feed_forward_length(a.ffn)
    writer.add_context_length(a.context)
    writer.add_key_length(a.head_dim)
    (writer.add_layer_norm_eps if kind == "gpt2" else writer.add_layer_norm_rms_eps)(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([f"w{i}" for i in range(tokens)])
    for key, value in dict(more).items():
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    for name, w in gguf_tensors(model, kind).items():
        array = w.numpy().astype(np.float32)
        if quantised is not None and w.ndim == 2 and w.shape[1] % 32 == 0:
            data = gguf.quants.quantize(array, quantised)
            writer.add_tensor(name, data, raw_dtype=quantised)
        else:
            writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_tensors(model, kind):
    a, out = model.architecture, {"token_embd.weight": model.weights["embed"]}
    for key, w in model.weights.items():
        if key.startswith("layers."):
            _, i, part, form = key.split(".")
            if kind == "qwen2" and form == "bias" and part not in "qkv":
                continue
            if kind == "llama" and part in "qk":
                w = paired(w, a.heads if part == "q" else a.kv_heads)
            if kind != "gpt2" or part not in "qkv":
                out[f"blk.{i}.{GGUF_NAMES[part]}.{form}"] = w
            elif part == "q":
                rows = [model.weights[f"layers.{i}.{p}.{form}"] for p in "qkv"]
                out[f"blk.{i}.attn_qkv.{form}"] = torch.cat(rows)
        elif key.startswith("norm."):
            out[f"output_{key}"] = w
    if a.positions == "learned":
        out["position_embd.weight"] = model.weights["positions"]
    if not a.tied_output:
        out["output.weight"] = model.weights["output.weight"]
    return {name: tensor.contiguous() for name, tensor in out.items()}


@pytest.mark.parametrize(
    ("kind", "architecture"),
    [
        ("llama", LLAMA),
        ("qwen2", QWEN2),
        ("qwen3", replace(LLAMA, has_qk_norm=True)),
        ("gpt2", GPT2),
    ],
)
def test_gguf_is_read_as_it_was_written(tmp_path, kind, architecture):
    model = make_model(replace(architecture, norm_eps=float(np.float32(1e-5))))
    if kind == "qwen2":
        model = without_small_biases(model)
    same(open_checkpoint(write_gguf(tmp_path / "m.gguf", model, kind)).load(), model)


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 1e-2), ("Q5_0", 0.1), ("Q4_0", 0.2), ("Q4_1", 0.2)],
)
def test_quantised_matrices_are_near_what_they_were(tmp_path, name, tolerance):
    wide = replace(LLAMA, width=32, ffn=64, norm_eps=float(np.float32(1e-5)))
    model = make_model(wide)
    kind = gguf.GGMLQuantizationType[name]
    found = open_checkpoint(write_gguf(tmp_path / "m.gguf", model, "llama", quantised=kind)).load()
    assert not torch.equal(found.weights["layers.0.up.weight"], model.weights["layers.0.up.weight"])
    same(found, model, tolerance)


def test_an_unknown_gguf_architecture_is_refused_by_name(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(
        DataError, match=r"general\.architecture of gpt2, llama, qwen2, qwen3, got 'mamba'"
    ):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "more",
    [
        {"llama.rope.scaling.factor": 4.0},  # llama.cpp takes a factor without a type as linear
        {"llama.rope.scale_linear": 4.0},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    ],
)
def test_positions_of_gguf_are_slowed_down_by_their_factor(tmp_path, more):
    slow = replace(LLAMA, norm_eps=float(np.float32(1e-5)), rope_factor=4.0)
    model = make_model(slow)
    same(open_checkpoint(write_gguf(tmp_path / "m.gguf", model, "llama", more=more)).load(), model)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0}, "one linear"),
        ({"llama.rope.scaling.factor": 2.0, "llama.rope.scale_linear": 4.0}, "one linear"),
        ({"llama.expert_count": 8}, "expert_count = 8 is a setting that tacit does not know"),
        ({"llama.attention.value_length": 4}, "values as wide as keys"),
        ({"general.architecture": ["llama"]}, "wanted a general.architecture"),
        ({"tokenizer.ggml.tokens": 64}, "wanted a list of tokens"),
    ],
)
def test_a_setting_of_gguf_that_changes_answers_is_refused_by_name(tmp_path, more, words):
    path = write_gguf(tmp_path / "m.gguf", make_model(LLAMA), "llama")
    found = gguf_file.Packed(path)
    found.settings.update(more)
    with pytest.raises(DataError, match=words):
        found.describe()


def test_scaled_positions_of_llama_3_are_refused_by_their_name(tmp_path):
    found = gguf_file.Packed(write_gguf(tmp_path / "m.gguf", make_model(LLAMA), "llama"))
    found._tensors["rope_freqs.weight"] = None
    with pytest.raises(DataError, match=r"rope_freqs\.weight: positions as LLaMA 3"):
        found.describe()


def test_scores_of_gpt2_are_divided_only_where_its_settings_say_so(tmp_path):
    model = make_model(GPT2)
    config = {**GPT2_CONFIG, "scale_attn_weights": False}
    raw = open_checkpoint(write(tmp_path, config, gpt2_tensors(model))).load()
    assert raw.architecture == replace(GPT2, score_scale=1.0)
    queries = {
        key: w * (GPT2.head_dim**0.5 if ".q." in key else 1) for key, w in model.weights.items()
    }
    wanted = logits(LanguageModel(architecture=GPT2, weights=queries), [3, 1, 4, 1, 5])
    torch.testing.assert_close(logits(raw, [3, 1, 4, 1, 5]), wanted, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(logits(model, [3, 1, 4, 1, 5]), wanted, atol=1e-3)


def test_a_missing_library_of_gguf_is_named_as_such(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "m.gguf", make_model(LLAMA), "llama")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ConfigError, match=r"^language models need gguf; install it with"):
        open_checkpoint(path)


def test_a_gguf_folder_may_hold_one_model(tmp_path):
    model = make_model(LLAMA)
    write_gguf(tmp_path / "a.gguf", model, "llama")
    assert open_checkpoint(tmp_path).name == tmp_path.name
    write_gguf(tmp_path / "b.gguf", model, "llama")
    with pytest.raises(DataError, match="found 2; name the one you mean"):
        open_checkpoint(tmp_path)
    assert open_checkpoint(tmp_path / "b.gguf").name == "b"
