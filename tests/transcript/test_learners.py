"""What a party receives during a fit carries no trace of rows or labels.

One computing party is corrupt: all generators that it shares give zeros, so that nothing it knows
makes words look random. Two data sets with the same public facts, each of a single value, are
learned from. Messages must then be the same in number, tag and shape, their words uniform, alone
and in differences between the two, and none must come again in a second run: a mask that is left
out, known to the receiver or used twice does not pass. Chance of a false alarm: below 1e-9.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from support.crypto import complaints
from support.mpc import PATIENCE, Wiretap, _generators
from tacit.learners import Connected, DecisionTreeClassifier, GaussianNB, KMeans
from tacit.party import Meeting, run_threads

ROWS = 256
MANY = 512  # words in a message that is looked at by itself
NAMES = ("bank", "shop", "dealer")
FITS = {
    "bayes": GaussianNB,
    "clusters": lambda: KMeans(2, init="random", max_iter=1),
    "a tree": lambda: DecisionTreeClassifier(1, max_bins=3),
}


def received(make, *, value, label, corrupt, is_leaky=False):
    """Fit on rows of one value and one label; return what every party received."""
    notes = {name: [] for name in NAMES}
    x, y = np.full((ROWS, 1), value), np.full(ROWS, label)

    def party(session):
        session = replace(session, generators=_generators(session, corrupt, {}))
        parties = Connected(session, owners=("bank", "shop"))
        parts = {"bank": {"bank": x}, "shop": {"shop": (x, y)}}
        data = parties.columns(parts.get(session.me, {}), classes=(0, 1))
        model = make().fit(data, parties)
        if is_leaky:
            parties.do(lambda engine: engine.open([f"{data.name}/x"], to=(corrupt,), why="a bug"))
        return model._name

    meeting = Meeting(parties=NAMES, job_digest=bytes(32), patience=PATIENCE)
    wrap = lambda me, link: Wiretap(link, notes[me])  # noqa: E731 - one line in place
    run_threads(dict.fromkeys(NAMES, party), meeting, wrap=wrap)
    return {name: sorted(found, key=lambda one: one[0]) for name, found in notes.items()}


def pooled(messages):
    """Put the words of all messages of a type together."""
    kinds = {words.dtype for _, words in messages}
    return {
        kind: torch.cat([w.flatten() for _, w in messages if w.dtype == kind]) for kind in kinds
    }


def wrong(first, second):
    """Say what is not as it should be in what a party received for two data sets."""
    found = []
    if [(t, w.shape, w.dtype) for t, w in first] != [(t, w.shape, w.dtype) for t, w in second]:
        return ["messages differ in tags or shapes"]
    for (tag, one), (_, other) in zip(first, second, strict=True):
        if one.numel() >= MANY:
            found += [f"{tag}: {text}" for w in (one, other) for text in complaints(w.flatten())]
        if one.dtype == torch.int64 and bool((one == other).any()):
            found.append(f"{tag}: a word came twice")
    for kind, words in pooled(first).items():
        others = pooled(second)[kind]
        for name, value in (("first", words), ("second", others), ("both", words - others)):
            found += [f"{name}, {kind}: {text}" for text in complaints(value)]
    return found


@pytest.mark.parametrize("corrupt", ["bank", "shop"])
@pytest.mark.parametrize("kind", FITS)
def test_two_data_sets_look_alike_to_a_computing_party(kind, corrupt):
    first = received(FITS[kind], value=0.5, label=0, corrupt=corrupt)
    second = received(FITS[kind], value=-0.5, label=1, corrupt=corrupt)
    assert len(first[corrupt]) > 20
    assert wrong(first[corrupt], second[corrupt]) == []


def test_the_dealer_receives_nothing_at_all():
    for kind in FITS:
        assert received(FITS[kind], value=0.5, label=0, corrupt="dealer")["dealer"] == []


def test_the_same_rows_look_fresh_in_a_second_run():
    runs = [received(FITS["bayes"], value=0.5, label=0, corrupt="bank") for _ in range(2)]
    assert wrong(runs[0]["bank"], runs[1]["bank"]) == []


def test_an_opening_too_many_is_noticed():
    runs = [
        received(FITS["clusters"], value=value, label=0, corrupt="bank", is_leaky=True)
        for value in (0.5, -0.5)
    ]
    assert wrong(runs[0]["bank"], runs[1]["bank"]) != []
