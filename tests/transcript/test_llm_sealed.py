"""What the parties of a sealed pass receive carries no trace of text or weights."""

import pytest
import torch

from support.crypto import complaints
from support.llm import overhear_sealed
from support.mpc import ALICE, BOB, CAROL

FEWEST = 256


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
def test_whole_words_that_a_party_receives_are_uniform(corrupt):
    """Masked openings of whole words; the narrow ones are those of `test_transcripts`."""
    other = BOB if corrupt == ALICE else ALICE
    looks = [
        words.reshape(-1, 1)
        for tag, words in overhear_sealed(corrupt).received[corrupt]
        if words.dtype == torch.int64 and tag.endswith(f"from {other}")
    ]
    large = [words for words in looks if len(words) >= FEWEST]
    assert len(large) >= 10
    for words in large:
        assert complaints(words) == []


def test_the_dealer_is_sent_nothing():
    assert overhear_sealed(CAROL).received[CAROL] == []


def test_sizes_do_not_depend_on_the_text_or_the_weights():
    def sizes(**changes):
        found = overhear_sealed(None, **changes).received
        return {me: [(tag, words.shape) for tag, words in found[me]] for me in (ALICE, BOB)}

    assert sizes(ids=(1, 2, 3, 4)) == sizes(ids=(9, 9, 9, 9))


def test_a_pass_costs_what_its_plan_says():
    run = overhear_sealed(None, ids=(1, 2, 3))
    assert run.metered == run.plan.cost
