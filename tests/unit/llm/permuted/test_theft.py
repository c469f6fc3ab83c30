"""Attacks of a user on the weights under the permuted protocol: they succeed, as the page says.

Each proves a sentence of the page about private models. Where one of them stops working, that
sentence is out of date.
"""

from contextlib import ExitStack
from unittest import mock

import pytest
import torch

from support.llm import speak, tiny
from support.llm_theft import steal
from tacit.llm.permuted import Conversation, Precision, rows_to_steal
from tacit.llm.permuted.asking import Asking, UserParty
from tacit.llm.permuted.attention import Incremental
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.masks import Ranges
from tacit.llm.permuted.messages import pack
from tacit.llm.permuted.weights import fold, matrices

EXACT = 2e-5
"""Weights have 19 fraction bits here, 2e-6; solving for them costs another digit at most."""
NEAR = 1e-7
"""Two sums of shown values agree by chance once in 10^7 times; a match is looked for in 10^5."""


@pytest.mark.parametrize(
    ("family", "context", "prompts", "tied"),
    [("llama", 56, 1, False), ("llama", 41, 1, True), ("gpt2", 56, 2, False)],
)
def test_a_user_who_cheats_gets_every_matrix_in_one_or_two_prompts(family, context, prompts, tied):
    """To the last bits that the protocol computes with; the owner sees nothing odd."""
    model = tiny(family, seed=3, context=context, tied_output=tied)
    a = model.architecture
    if tied:
        model.weights["output.weight"] = model.weights["embed"]
    found, rows = steal(model)
    assert rows == prompts * a.context == rows_to_steal(a)  # what owners are told before they serve
    plan = Blueprint(a, Precision())
    for matrix in matrices(a):
        weight, bias, _ = fold(model, matrix, plan)
        stolen = found[matrix.name].T if matrix.name == "embed" else found[matrix.name]
        assert float((stolen - weight).abs().max()) < EXACT, matrix.name
        if bias is not None and not matrix.name.endswith("qkv"):
            assert float((found[f"{matrix.name} bias"] - bias).abs().max()) < EXACT, matrix.name
    if a.positions == "learned":
        assert torch.allclose(found["positions"], model.weights["positions"].double(), atol=EXACT)


def watched(model, prompts, prompt=None):
    """Return what a user sees that reads some prompts: by wire, a list of (rows, width)."""
    seen, original = {}, UserParty._see

    def noting(self, exchange):
        values = original(self, exchange)
        for name, value in values.items():
            seen.setdefault(f"{exchange.label}.{name}", []).append(value)
        return values

    def talk(client):
        for ids in prompts:
            conversation = Conversation(client)
            conversation.score(ids)
            conversation.close()

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(UserParty, "_see", noting))
        if prompt is not None:
            stack.enter_context(mock.patch.object(Asking, "prompt", prompt))
        speak(model, talk)
    return seen


def test_honest_corrections_would_not_keep_the_embeddings():
    """The user follows the protocol but for rows that are the sum of two tokens instead of one.

    Three rows of a token then tell which of its values belongs to which of the first token's. One
    order of places for all of the model is left, and a model with its places in another order is
    the same model.
    """
    model = tiny("llama", seed=3)
    vocab, width = 40, model.architecture.width

    def summing(user, prepared, ids, seen):
        hot = -prepared.prf.words("first.hot.mask", len(ids), vocab)
        hot[torch.arange(2), torch.tensor(ids[:2])] += 1
        hot[2, torch.tensor(ids[:2])] += 1
        return pack(hot, user.plan.wide_bytes).reshape(-1)

    prompts = [[0, token, 1] for token in range(1, vocab)]
    shown = watched(model, prompts, summing)["0.project.x"]
    first = shown[0][0]
    found = torch.empty(vocab, width, dtype=torch.float64)
    found[0] = first
    for token, (_, other, both) in enumerate(shown, 1):
        found[token] = other[paired(first, other, both)]
    true = model.weights["embed"].double()
    order = (first.view(-1, 1) - true[0]).abs().argmin(1)
    assert float((found - true[:, order]).abs().max()) < EXACT


def paired(first, other, both):
    """Say which place of the second row belongs to each of the first, by a row with their sums."""
    sums = first.view(-1, 1, 1) + other.view(1, -1, 1) - both  # (first, other, both)
    return sums.abs().amin(2).argmin(1)


def test_honest_corrections_would_not_keep_the_matrices():
    """The prompt is one token all over, the corrections are honest: chosen answers are enough.

    Where attention answers zero, the same values come back in every row, and their ranks name the
    places. Unit vectors, and sums of two of them, then read the columns of the feed-forward part,
    and what is answered for the stream is a tag itself.
    """
    model = tiny("llama", seed=3, layers=1)
    a = model.architecture
    eye, count = torch.eye(a.width, dtype=torch.float64), 2 * a.width - 1
    first = torch.cat([eye, eye[1:] + eye[0], eye[:1].expand(a.ffn, -1)])  # rows of h
    tags = 16.0 * torch.arange(a.width, dtype=torch.float64).expand(count + a.ffn, -1)
    active = torch.cat([torch.zeros(count, a.ffn), torch.eye(a.ffn)]).double()
    seen, see, answer = {}, UserParty._see, UserParty._answer

    def seeing(self, exchange):
        values = see(self, exchange)
        seen.update(values)
        return values

    def answering(self, exchange, values):
        if exchange.label == "0.middle":
            ranks = seen["x"].argsort(1).argsort(1)
            values = {"h": first.gather(1, ranks), "x": tags.gather(1, ranks)}
        elif exchange.label == "0.act":
            values = {"y": active.gather(1, seen["gate"].argsort(1).argsort(1))}
        answer(self, exchange, values)

    def talk(client):
        conversation = Conversation(client)
        conversation.score([0] * (count + a.ffn))
        conversation.close()

    with (
        mock.patch.object(UserParty, "_see", seeing),
        mock.patch.object(UserParty, "_answer", answering),
        mock.patch.object(Incremental, "_softmax", lambda kernel, seen: torch.zeros_like(seen)),
        mock.patch.object(Ranges, "check"),
    ):
        speak(model, talk)
    gate, up = seen["gate"], seen["up"]
    base = gate[0].argsort()
    places = [base]
    for i in range(1, a.width):
        places.append(paired(gate[0][base], gate[i], gate[a.width - 1 + i]))
    stolen = [
        torch.stack([rows[i][place] for i, place in enumerate(places)], 1) for rows in (gate, up)
    ]
    column = seen["x"].sort(1).values[count:] - tags[count:]
    plan = Blueprint(a, Precision())
    weights = {one.name: fold(model, one, plan)[0] for one in matrices(a)}
    order = model.weights["embed"][0].argsort()
    units = weights["0.up"][: a.ffn, order[0]].argsort()
    for half, true in zip(stolen, weights["0.up"].split(a.ffn), strict=True):
        assert float((half - true[units][:, order]).abs().max()) < EXACT
    assert float((column.T - weights["0.down"][order][:, units]).abs().max()) < EXACT


def aligned(corner, left, upper, cell):
    """Batch three rows like the first, if cell − left − upper + corner is zero place by place."""
    sums = left.view(-1, 1, 1) + upper.view(1, -1, 1) - cell  # (left, upper, cell)
    found = [(sums - value).abs().argmin() for value in corner]
    gaps = torch.stack([(sums - value).abs().min() for value in corner])
    assert float(gaps.max()) < NEAR
    places = [torch.unravel_index(one, sums.shape) for one in found]
    return [
        torch.stack([row[place[axis]] for place in places])
        for axis, row in enumerate((left, upper, cell))
    ]


def test_a_user_of_a_gpt2_who_does_nothing_wrong_recovers_what_it_reads_first():
    """Embeddings, positions, and the first queries, keys and values: from honest prompts alone.

    The stream is a token plus a position, and queries are linear in it. So four rows, of two
    tokens at two places, add up to zero place by place, and hardly in any other order.
    """
    model = tiny("gpt2", seed=3)
    a, count = model.architecture, 24
    prompts = [[token] * (8 if token < 2 else 2) for token in range(count)]
    seen = watched(model, prompts)
    rows = {}
    for wire in ("x", "q", "k", "v"):
        shown = seen[f"0.project.{wire}"]
        corner, upper = shown[0][0], shown[0][1]  # token 0 at places 0 and 1
        out = [aligned(corner, one[0], upper, one[1])[0] for one in shown[1:]]
        rows[wire] = torch.stack([corner, *out])
    true = model.weights["embed"].double()[:count] + model.weights["positions"][0].double()
    order = (rows["x"][0].view(-1, 1) - true[0]).abs().argmin(1)
    assert float((rows["x"] - true[:, order]).abs().max()) < EXACT
    zero, one = seen["0.project.x"][:2]
    steps = [
        aligned(zero[0], one[0], zero[place], one[place])[1] - zero[0] for place in range(1, 8)
    ]
    positions = model.weights["positions"].double()
    wanted = (positions[1:8] - positions[0])[:, order]
    assert float((torch.stack(steps) - wanted).abs().max()) < EXACT
    weight = fold(model, matrices(a)[1], Blueprint(a, Precision()))[0]
    for wire, part in zip("qkv", weight.split(a.width), strict=True):
        stolen = torch.linalg.lstsq(rows["x"], rows[wire]).solution.T
        outputs = (rows[wire][0].view(-1, 1) - true[0] @ part.T).abs().argmin(1)
        assert float((stolen - part[outputs][:, order]).abs().max()) < 1e-3
