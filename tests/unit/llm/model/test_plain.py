"""The plain forward pass against references that are written another way."""

import math
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from support.llm import ARCHITECTURES, CHATGLM, GPT2, LLAMA, make_model
from tacit.errors import DataError
from tacit.llm import Cache, generate, logits, next_logits, perplexity
from tacit.llm.model.plain import norm, streams

IDS = [5, 17, 3, 3, 60, 42, 9, 1]


@pytest.mark.parametrize("name", ["llama", "qwen2", "gpt2"])
def test_reading_token_by_token_is_reading_at_once(name):
    model = make_model(ARCHITECTURES[name])
    cache = Cache()
    steps = torch.cat([logits(model, [token], cache) for token in IDS])
    torch.testing.assert_close(steps, logits(model, IDS), atol=1e-4, rtol=1e-4)


@given(cut=st.integers(1, len(IDS) - 1), name=st.sampled_from(["llama", "qwen2", "gpt2"]))
def test_a_prompt_may_be_read_in_pieces(cut, name):
    model = make_model(ARCHITECTURES[name])
    cache = Cache()
    logits(model, IDS[:cut], cache)
    rest = logits(model, IDS[cut:], cache)
    torch.testing.assert_close(rest, logits(model, IDS)[cut:], atol=1e-4, rtol=1e-4)


def test_gpt2_is_what_torch_computes():
    model = make_model(GPT2)
    x = model.weights["embed"][IDS] + model.weights["positions"][: len(IDS)]
    for i in range(GPT2.layers):
        x = torch_block(model, i)(x[None], src_mask=causal(len(IDS)))[0]
    x = nn.functional.layer_norm(x, (16,), model.weights["norm.weight"], model.weights["norm.bias"])
    torch.testing.assert_close(
        logits(model, IDS), x @ model.weights["embed"].T, atol=1e-4, rtol=1e-4
    )


def torch_block(model, i):
    w = {
        k.removeprefix(f"layers.{i}."): v
        for k, v in model.weights.items()
        if k.startswith(f"layers.{i}.")
    }
    block = nn.TransformerEncoderLayer(
        16,
        4,
        24,
        dropout=0.0,
        norm_first=True,
        batch_first=True,
        activation=lambda x: nn.functional.gelu(x, approximate="tanh"),
    )
    state = {
        "self_attn.in_proj_weight": torch.cat([w[f"{p}.weight"] for p in "qkv"]),
        "self_attn.in_proj_bias": torch.cat([w[f"{p}.bias"] for p in "qkv"]),
        "self_attn.out_proj.weight": w["o.weight"],
        "self_attn.out_proj.bias": w["o.bias"],
    }
    for theirs, ours in (("linear1", "up"), ("linear2", "down"), ("norm1",) * 2, ("norm2",) * 2):
        state |= {f"{theirs}.{kind}": w[f"{ours}.{kind}"] for kind in ("weight", "bias")}
    block.load_state_dict(state)
    return block.requires_grad_(requires_grad=False)  # training mode: no fused fast path


def causal(count):
    return torch.full((count, count), -math.inf).triu(1)


def test_llama_is_what_its_formulas_say():
    model = make_model(LLAMA)
    x = model.weights["embed"][IDS].double()
    for i in range(LLAMA.layers):
        w = {p: model.weights[f"layers.{i}.{p}.weight"].double() for p in BLOCK}
        h = rms(x, w["norm1"])
        mixed = []
        for head in range(4):
            rows = slice(8 * head, 8 * head + 8)
            shared = slice(8 * (head // 2), 8 * (head // 2) + 8)
            places = torch.arange(len(IDS))
            q = turn(h @ w["q"][rows].T, places)
            k = turn(h @ w["k"][shared].T, places)
            scores = q @ k.T / math.sqrt(8) + causal(len(IDS))
            mixed.append(scores.softmax(-1) @ (h @ w["v"][shared].T))
        x = x + torch.cat(mixed, -1) @ w["o"].T
        h = rms(x, w["norm2"])
        gate = h @ w["gate"].T
        x = x + (gate / (1 + (-gate).exp()) * (h @ w["up"].T)) @ w["down"].T
    wanted = rms(x, model.weights["norm.weight"].double()) @ model.weights["embed"].double().T
    torch.testing.assert_close(logits(model, IDS).double(), wanted, atol=1e-4, rtol=1e-4)


BLOCK = ("norm1", "norm2", "q", "k", "v", "o", "gate", "up", "down")


def rms(x, weight):
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def turn(x, places):
    """Turn features j and j + half as one complex number."""
    half = x.shape[-1] // 2
    speed = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    spin = torch.polar(torch.ones(len(x), half).double(), places[:, None] * speed)
    turned = torch.complex(x[:, :half].double(), x[:, half:].double()) * spin
    return torch.cat([turned.real, turned.imag], -1)


def test_chatglm_is_what_its_formulas_say():
    model = make_model(CHATGLM)
    count, prompt = len(IDS), len(IDS) - 1
    first = torch.tensor([min(j, prompt - 1) for j in range(count)])
    second = torch.tensor([max(0, j - prompt + 1) for j in range(count)])
    allowed = causal(count)
    allowed[:, :prompt] = 0
    x = model.weights["embed"][IDS].double()
    for i in range(CHATGLM.layers):
        w = {
            k.removeprefix(f"layers.{i}."): v.double()
            for k, v in model.weights.items()
            if k.startswith(f"layers.{i}.")
        }
        h = layer(x, w["norm1.weight"], w["norm1.bias"])
        mixed = []
        for head in range(4):
            rows = slice(4 * head, 4 * head + 4)
            q, k, v = (h @ w[f"{p}.weight"][rows].T + w[f"{p}.bias"][rows] for p in "qkv")
            q, k = (torch.cat([turn(y[:, :2], first), turn(y[:, 2:], second)], -1) for y in (q, k))
            mixed.append((q @ k.T / 2 + allowed).softmax(-1) @ v)
        x = 2 * h + torch.cat(mixed, -1) @ w["o.weight"].T + w["o.bias"]
        h = layer(x, w["norm2.weight"], w["norm2.bias"])
        up = nn.functional.gelu(h @ w["up.weight"].T + w["up.bias"], approximate="tanh")
        x = 2 * h + up @ w["down.weight"].T + w["down.bias"]
    x = layer(x, model.weights["norm.weight"].double(), model.weights["norm.bias"].double())
    wanted = x @ model.weights["output.weight"].double().T
    torch.testing.assert_close(logits(model, IDS).double(), wanted, atol=1e-4, rtol=1e-4)


def layer(x, weight, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def test_chatglm_goes_on_behind_its_prompt():
    # While it answers it is causal: the answer read at once is the answer read token by token.
    model = make_model(CHATGLM)
    cache, whole = Cache(), Cache()
    logits(model, IDS[:4], cache)
    logits(model, IDS[:4], whole)
    steps = torch.cat([logits(model, [token], cache) for token in IDS[4:]])
    torch.testing.assert_close(steps, logits(model, IDS[4:], whole), atol=1e-4, rtol=1e-4)


def test_generation_takes_what_is_chosen_and_ends_at_a_full_context():
    model = make_model(LLAMA)
    tokens = list(
        generate(model, IDS, choose=lambda scores: int(scores.argmax()), limit=99, cache=Cache())
    )
    assert len(tokens) == LLAMA.context - len(IDS) + 1
    for i in range(3):
        scores = next_logits(model, [*IDS, *tokens[:i]], Cache())
        assert tokens[i] == int(scores.argmax())


def test_generation_asks_no_further_than_it_is_asked():
    model, cache = make_model(LLAMA), Cache()
    tokens = generate(model, IDS, choose=lambda scores: 0, limit=9, cache=cache)
    assert list(islice(tokens, 2)) == [0, 0]
    assert cache.length == len(IDS) + 1


def test_perplexity_is_the_mean_surprise():
    model = make_model(GPT2)
    odds = logits(model, IDS).softmax(-1)
    surprise = [-math.log(odds[i, IDS[i + 1]]) for i in range(len(IDS) - 1)]
    assert perplexity(model, IDS) == pytest.approx(math.exp(sum(surprise) / 7), rel=1e-4)


def test_a_text_beyond_the_context_is_refused():
    with pytest.raises(DataError, match="33 tokens, the model's context is 32"):
        logits(make_model(LLAMA), [1] * 33)


def test_an_id_beyond_the_vocabulary_is_refused():
    with pytest.raises(DataError, match="between 0 and 63, got 64"):
        logits(make_model(LLAMA), [64])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_streams_are_what_every_layer_reads_and_what_the_scores_follow_from(name):
    model = make_model(ARCHITECTURES[name])
    found, other = streams(model, [[1, 2, 3], [5]])
    assert other[-1].shape == (1, 16)
    assert [tuple(x.shape) for x in found] == [(3, 16)] * (model.architecture.layers + 1)
    scores = norm(model, "norm", found[-1]) @ model.weights["output.weight"].T
    assert torch.allclose(scores, logits(model, [1, 2, 3]), atol=1e-5)
