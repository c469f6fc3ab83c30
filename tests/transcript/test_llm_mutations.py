"""Take each mask and each permutation away, one at a time: the transcripts of a chat must notice.

The draws are found by listening to a chat, so a step that is written tomorrow is tried tomorrow. A
draw is taken away at all parties, so that the chat still goes on as if nothing was.
"""

from unittest import mock

import pytest

from support.llm_views import everything_is_clean, kind_of, overheard, without
from tacit.llm.permuted import FORMS
from tacit.llm.permuted.prf_stream import PrfStream

KINDS = ("words", "shuffles", "shuffles_within")
SKETCH = (  # one of each sort for every day; all of them with -m slow
    "resent words #.#.attention.blind.k",
    "resent words #.project.reveal_mask",
    "incremental words #.#.attention.score_shares",
    "resent words first.counts.mask",
    "resent shuffles #.act.f",
)


def draws(form):
    """Name every draw of a chat: its method and its label, with the numbers taken out."""
    found = set()
    originals = {kind: getattr(PrfStream, kind) for kind in KINDS}

    def listening(kind):
        def wrapped(self, label, *arguments):
            found.add((kind, kind_of(label)))
            return originals[kind](self, label, *arguments)

        return wrapped

    with (
        mock.patch.object(PrfStream, "words", listening("words")),
        mock.patch.object(PrfStream, "shuffles", listening("shuffles")),
        mock.patch.object(PrfStream, "shuffles_within", listening("shuffles_within")),
    ):
        overheard(form, None, limit=3)
    shuffled = {label for kind, label in found if kind != "words"}
    return sorted(one for one in found if one[0] != "words" or one[1] not in shuffled)


def test_the_checks_pass_on_the_code_as_it_is():
    everything_is_clean(["resent"])


def test_many_draws_are_found():
    assert len(draws("incremental")) >= 35


@pytest.mark.parametrize("which", SKETCH)
def test_a_missing_mask_is_noticed(which):
    form, kind, label = which.split()
    assert (kind, label) in draws(form)
    with without(kind, label), pytest.raises(AssertionError):
        everything_is_clean([form])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", FORMS)
def test_every_missing_mask_is_noticed(form):
    unnoticed = []
    for kind, label in draws(form):
        with without(kind, label):
            try:
                everything_is_clean([form])
            except AssertionError:
                continue
            unnoticed.append(f"{kind} {label}")
    assert unnoticed == []
