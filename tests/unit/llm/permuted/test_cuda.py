"""Passes of one row on CUDA: kernels word for word, recorded passes token for token."""

import pytest
import torch

from support.llm import BRIEF, best, plainly, speak, tiny
from tacit.llm.permuted import Conversation, Precision, kernels, open_vault
from tacit.llm.permuted.geometry import Heads
from tacit.llm.permuted.messages import encode, pack, unpack, wrap

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BYTES = [3, 5, 6, 7, 8]


def words(*shape, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**62), 2**62, shape, generator=draw).mul(3).cuda()


def octets(count):
    return torch.zeros(count, dtype=torch.uint8, device="cuda")


def blocks(n):
    return (-(-n // kernels.BLOCK),)


@pytest.mark.parametrize("nbytes", BYTES)
def test_two_vectors_are_shown_permuted_and_taken_back(nbytes):
    n, first, second = 1000, words(400, seed=1), words(600, seed=2)
    places, reveal_mask, out = torch.randperm(n).cuda(), words(n, seed=3), octets(n * nbytes)
    sizes = {"NBYTES": nbytes, "BLOCK": kernels.BLOCK}
    kernels.show[blocks(n)](first, second, 400, 3, 5, places, reveal_mask, out, 0, n, **sizes)
    expected = pack(torch.cat([first >> 3, second >> 5])[places] + reveal_mask, nbytes)
    assert torch.equal(out, expected)
    back = torch.zeros_like(reveal_mask)
    kernels.take[blocks(n)](out, 0, reveal_mask, places, back, n, **sizes)
    there = torch.empty_like(back)
    there[places] = unpack(expected, nbytes) + reveal_mask
    assert torch.equal(back, there)


@pytest.mark.parametrize("nbytes", BYTES)
def test_what_is_seen_is_exact_and_its_peak_is_noted(nbytes):
    n, reveal_mask, message = 700, words(700, seed=4), pack(words(700, seed=5), nbytes)
    out = torch.zeros(n, dtype=torch.float64, device="cuda")
    peak = torch.zeros(1, dtype=torch.int64, device="cuda")
    sizes = {"NBYTES": nbytes, "BLOCK": kernels.BLOCK}
    kernels.see[blocks(n)](message, 0, reveal_mask, out, peak, n, 1, 2.0**-11, **sizes)
    seen = wrap(unpack(message, nbytes) + reveal_mask + 1, nbytes)
    assert torch.equal(out, seen.double() * 2.0**-11)
    assert int(peak) == int(seen.abs().max())


@pytest.mark.parametrize("nbytes", [5, 6, 8])
def test_a_normalised_answer_is_rounded_to_even_and_covered(nbytes):
    n, answer_mask = 900, words(900, seed=6)
    values = torch.randn(n, dtype=torch.float64, device="cuda") * 3
    stats = torch.zeros(2, dtype=torch.float64, device="cuda")
    eps = torch.tensor([1e-5], dtype=torch.float64, device="cuda")
    kernels.spread[(1,)](values, eps, stats, n, IS_LAYER=True, WHOLE=1024)
    sigma = ((values - values.mean()).square().mean() + 1e-5).sqrt()
    assert torch.allclose(stats, torch.stack([values.mean(), sigma]), rtol=1e-12)
    out = octets(8 + n * nbytes)
    rules = {"CENTRES": True, "DIVIDES": True, "NBYTES": nbytes, "BLOCK": kernels.BLOCK}
    kernels.answer[blocks(n)](values, stats, answer_mask, out, 8, 0, n, n, 2.0**11, **rules)
    assert torch.equal(
        out[8:], pack(encode((values - stats[0]) / stats[1], 11) - answer_mask, nbytes)
    )


@pytest.mark.parametrize(("groups", "size", "dim", "keys"), [(4, 1, 16, 37), (2, 3, 24, 70)])
def test_attention_is_word_for_word_what_heads_compute(groups, size, dim, keys):
    heads, count, most = Heads(groups, size, dim), groups * size, 128
    n, drop, wide = count * keys, 16, 32
    place = torch.tensor([keys - 1], device="cuda")
    sizes = {"GROUPS": groups, "SIZE": size, "DIM": dim}
    query, cached = words(1, count, dim, seed=1), words(keys, groups, dim, seed=2)
    own = words(count * most, seed=3)
    grid = (count, most // 16)
    kernels.scores[grid](query, cached, own, place, drop, **sizes, WIDE=wide, BLOCK=16)
    assert torch.equal(own[:n].view(1, count, keys), heads.scores(query, cached) >> drop)
    weights = words(n, seed=4)
    out = words(count * dim, seed=5)
    kernels.mix[(count, 1)](weights, cached, out, place, **sizes, WIDE=wide, BLOCK=32)
    assert torch.equal(out.view(1, count, dim), heads.mix(weights.view(1, count, keys), cached))


@pytest.mark.parametrize("nbytes", [4, 6])
@pytest.mark.parametrize(("groups", "size", "dim", "keys"), [(4, 1, 16, 37), (2, 3, 24, 70)])
def test_what_the_user_adds_to_attention_is_word_for_word_what_heads_compute(
    groups, size, dim, keys, nbytes
):
    heads, count, most, drop = Heads(groups, size, dim), groups * size, 128, 16
    place = torch.tensor([keys - 1], device="cuda")
    sizes = {"GROUPS": groups, "SIZE": size, "DIM": dim, "WIDE": 32, "NBYTES": nbytes}
    caches = [words(keys, groups, dim, seed=seed) for seed in (1, 2)]
    rows = [words(1, count, dim, seed=seed) for seed in (3, 4)]
    split, out = words(count * keys, seed=5), octets(count * keys * nbytes)
    factors = (rows[0], caches[0], rows[1], caches[1], split)
    kernels.score_shares[(count, most // 16)](*factors, out, place, drop, **sizes, BLOCK=16)
    both = sum(heads.scores(row, cache) for row, cache in zip(rows, caches, strict=True))
    assert torch.equal(out, pack((both >> drop).view(-1) - split, nbytes))
    weights, rest = words(count * keys, seed=6), words(count * dim, seed=7)
    sent, out = pack(words(count * keys, seed=8), nbytes), octets(count * dim * nbytes)
    factors = (weights, caches[0], sent, caches[1], rest)
    kernels.mixed[(count, 1)](*factors, out, place, **sizes, BLOCK=32)
    weighed = [weights.view(1, count, keys), unpack(sent, nbytes).view(1, count, keys)]
    both = sum(heads.mix(one, cache) for one, cache in zip(weighed, caches, strict=True))
    assert torch.equal(out, pack(both.view(-1) - rest, nbytes))


@pytest.mark.parametrize("nbytes", [4, 6])
def test_scores_are_shown_and_weights_taken_back_in_their_order(nbytes):
    count, keys = 6, 37
    n, place = count * keys, torch.tensor([keys - 1], device="cuda")
    own, delta, answer_correction, blind = (words(n, seed=seed) for seed in range(4))
    permutation, sent = torch.randperm(n).cuda(), pack(words(n, seed=4), nbytes)
    sizes = {"HEADS": count, "NBYTES": nbytes, "BLOCK": kernels.BLOCK}
    out = octets(n * nbytes)
    kernels.reshow[blocks(n)](own, sent, permutation, delta, out, place, **sizes)
    assert torch.equal(out, pack((own + unpack(sent, nbytes))[permutation] + delta, nbytes))
    kept = torch.zeros_like(own)
    kernels.reweigh[blocks(n)](
        sent, answer_correction, permutation, blind, kept, out, place, **sizes
    )
    back = torch.empty_like(own)
    back[permutation] = unpack(sent, nbytes) + answer_correction
    assert torch.equal(kept, back)
    assert torch.equal(out, pack(back + blind, nbytes))


def talk_of(ids, limit, scores):
    def choose(row):
        scores.append(row.sort().values)
        return best(row)

    def talk(client):
        conversation = Conversation(client)
        tokens = list(conversation.generate(ids, choose, limit=limit))
        conversation.close()
        return tokens

    return talk


@pytest.mark.parametrize("form", ["incremental", "resent"])
@pytest.mark.parametrize("precision", [BRIEF, Precision()], ids=["brief", "full"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "chatglm"])
def test_a_chat_on_a_gpu_gives_the_scores_of_one_on_a_cpu(family, precision, form):
    model = tiny(family, seed=3)
    found = {}
    for device in ("cpu", "cuda"):
        vault = open_vault(model, precision=precision, device=device)
        found[device] = list[torch.Tensor]()
        talk = talk_of([3, 7, 11, 5], 7, found[device])
        speak(model, talk, precision=precision, vault=vault, form=form, device=device)
    most = 0.2 if precision is BRIEF else 0.01
    for here, there in zip(*found.values(), strict=True):
        assert float((here - there).abs().max()) < most


def test_a_long_chat_on_a_gpu_is_the_plain_one():
    model = tiny("llama", seed=19, context=512)  # its best two are never closer than 0.05
    ids = [1 + i % 30 for i in range(40)]
    vault = open_vault(model, device="cuda")
    said = speak(model, talk_of(ids, 120, []), vault=vault, form="incremental", device="cuda")
    assert said.value == plainly(model, ids, 120)
