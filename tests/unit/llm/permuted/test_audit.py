"""Attacks: the owner on the text, the user on the weights. Rates are fixed, and so are the seeds.

What the owner receives must not help it at all. What the user sees is permuted, not hidden: the
first attack on the weights succeeds, as the ledger says it must, and the others measure how far
known ways of undoing a permutation get on a small model. They prove nothing about better ones.
"""

from unittest import mock

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

from support.llm import best, speak, tiny
from tacit.llm import logits
from tacit.llm.permuted import Conversation, asking
from tacit.llm.permuted.asking import UserParty
from tacit.llm.permuted.masks import first_tally

ROWS = 240
TOKENS = 72


def read(ids_of, count=1):
    """Return a talk that reads some prompts, each in a conversation of its own."""

    def talk(client):
        for number in range(count):
            conversation = Conversation(client)
            list(conversation.generate(ids_of(number), best, limit=1))
            conversation.close()

    return talk


def owner_features(received):
    """Lay what the owner received out by row of the prompt: bytes of every message, scaled."""
    columns = []
    for tag, words in received:
        if not tag.startswith(("run0", "deal0", "fix0")):
            continue
        octets = words.contiguous().view(-1).view(torch.uint8)
        octets = octets[32:] if tag.startswith("run0/next") else octets
        if len(octets) >= ROWS:
            size = len(octets) // ROWS
            columns.append(octets[: ROWS * size].view(ROWS, size)[:, :64].double())
    features = torch.cat(columns, 1)
    return (features - features.mean(0)) / (features.std(0) + 1e-9)


def test_the_owner_guesses_the_text_no_better_than_by_chance():
    """Two tokens, one of them in every row: a linear reader, trained on half of the rows.

    By chance 60 of 120 guesses are right; more than 35 off once in 10^10 times.
    """
    model = tiny("llama", context=256, layers=1)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, ROWS)
    ids = [int(3 + 6 * bit) for bit in bits]
    spoken = speak(model, read(lambda _: ids), counts=True)
    features = owner_features(spoken.received["owner"])
    target = torch.tensor(2.0 * bits - 1)
    half = ROWS // 2
    kernel = features @ features.T / features.shape[1]
    weights = torch.linalg.solve(kernel[:half, :half] + torch.eye(half), target[:half])
    right = int(((kernel[half:, :half] @ weights).sign() == target[half:]).sum())
    assert 25 <= right <= 95


@pytest.fixture(scope="module")
def looks():
    """What a user sees that reads every token of the vocabulary alone: by wire, one row each."""
    model = tiny("llama", layers=1, seed=2, vocab=TOKENS)
    seen, original = {}, UserParty._see

    def noting(self, exchange):
        values = original(self, exchange)
        for name, value in values.items():
            seen.setdefault(f"{exchange.label}.{name}", []).append(value[0].numpy())
        return values

    with mock.patch.object(UserParty, "_see", noting):
        speak(model, read(lambda number: [number], count=TOKENS))
    return model, {name: np.stack(rows) for name, rows in seen.items()}


def test_the_user_learns_the_values_of_an_embedding_but_not_their_places(looks):
    """The ledger's first line, taken at its word: this is what permutation gives away."""
    model, seen = looks
    true = model.weights["embed"].double().numpy()
    shown = seen["0.project.x"]
    assert np.abs(np.sort(shown, 1) - np.sort(true, 1)).max() < 1e-4
    in_place = np.mean(np.abs(shown - true) < 1e-4)
    assert in_place < 0.12  # 1 of 16 by chance


def test_a_user_who_numbers_tokens_instead_of_counting_them_reads_all_scores():
    """What the page about private models says of a user who cheats, taken at its word."""
    model, seen = tiny("llama", seed=2), []

    def numbered(plan, prf):
        return first_tally(plan, prf) - 2 * torch.arange(plan.architecture.vocab)

    def adjust(scores, counts):
        seen.append((scores, counts))
        return scores

    def talk(client):
        conversation = Conversation(client)
        list(conversation.generate([1, 5, 7], best, limit=1, adjust=adjust))
        conversation.close()

    with mock.patch.object(asking, "first_tally", numbered):
        speak(model, talk, counts=True)
    ((scores, counts),) = seen
    order = (counts / 2).floor().long()  # an odd number is a token that came before
    read_out = torch.empty_like(scores).scatter_(0, order, scores)
    assert torch.allclose(read_out, logits(model, [1, 5, 7])[-1].double(), atol=0.01)


def recovered(guess, true):
    """Match the columns of a guess to those of the truth; return their mean correlation."""
    a = (guess - guess.mean(0)) / (guess.std(0) + 1e-12)
    b = (true - true.mean(0)) / (true.std(0) + 1e-12)
    match = np.abs(a.T @ b) / len(a)
    rows, columns = linear_sum_assignment(-match)
    return match[rows, columns].mean()


@pytest.mark.parametrize(
    ("wire", "attack"),
    [
        ("0.project.x", "rank"),
        ("0.project.x", "chain"),
        ("0.project.q", "rank"),
        ("0.project.q", "chain"),
    ],
)
def test_undoing_the_order_recovers_no_more_than_rows_shuffled_anew(looks, wire, attack):
    """Align the rows by rank, or each to the one before it, and compare with aligning noise.

    The yardstick is the same attack on the same values in orders that we draw ourselves.
    """
    model, seen = looks
    layer = {name: w.double().numpy() for name, w in model.weights.items()}
    x = layer["embed"]
    h = x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-5) * layer["layers.0.norm1.weight"]
    truth = {"0.project.x": x, "0.project.q": h @ layer["layers.0.q.weight"].T}
    true = truth[wire]
    rng = np.random.default_rng(1)
    attacks = {"rank": lambda rows: np.sort(rows, 1), "chain": chained}
    reached = recovered(attacks[attack](seen[wire]), true)
    yardstick = [
        recovered(attacks[attack](rng.permuted(seen[wire], axis=1)), true) for _ in range(20)
    ]
    assert reached <= np.mean(yardstick) + 5 * np.std(yardstick) + 0.02


def chained(rows):
    """Batch each row so that it lies nearest to the row before it."""
    out = [rows[0]]
    for row in rows[1:]:
        _, columns = linear_sum_assignment((out[-1][:, None] - row[None, :]) ** 2)
        out.append(row[columns])
    return np.stack(out)
