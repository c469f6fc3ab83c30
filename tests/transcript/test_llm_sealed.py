"""What the parties of a sealed pass receive carries no trace of text or weights."""

import pytest
import torch

from support.crypto import complaints
from support.llm import tiny
from support.mpc import ALICE, BOB, CAROL, simulate
from tacit.llm.parties import Seats
from tacit.llm.sealed import Pass, open_sealed_vault
from tacit.llm.sealed.passes import told_words
from tacit.llm.sealed.program import Passing

FEWEST = 256


def overheard(corrupt, *, ids=(7,) * 16, seed=0):
    """Run one pass with a corrupt party: P0 owns the model, P1 the text."""
    vault = open_sealed_vault(tiny("llama", layers=1, seed=seed))
    passing = Passing(
        architecture=vault.architecture,
        bounds=vault.bounds,
        gain_bits=vault.gain,
        reveal="token",
        seats=Seats(owner=ALICE, user=BOB, dealer=CAROL),
    )
    order = Pass(conversation=0, past=0, rows=len(ids), prompt=0, is_scored=True)
    vocab = vault.architecture.vocab
    wishes = {"slopes": torch.ones(2, vocab), "noise": torch.zeros(1, vocab)}
    inputs = {ALICE: vault.weights, BOB: passing.inputs(list(ids)) | wishes}
    told = told_words(vault.architecture, order)
    return simulate(lambda ops: passing.run(ops, order), inputs=inputs, corrupt=corrupt, told=told)


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
def test_whole_words_that_a_party_receives_are_uniform(corrupt):
    """Masked openings of whole words; the narrow ones are those of `test_transcripts`."""
    other = BOB if corrupt == ALICE else ALICE
    looks = [
        words.reshape(-1, 1)
        for tag, words in overheard(corrupt).received[corrupt]
        if words.dtype == torch.int64 and tag.endswith(f"from {other}")
    ]
    large = [words for words in looks if len(words) >= FEWEST]
    assert len(large) >= 10
    for words in large:
        assert complaints(words) == []


def test_the_dealer_is_sent_nothing():
    assert overheard(CAROL).received[CAROL] == []


def test_sizes_do_not_depend_on_the_text_or_the_weights():
    def sizes(**changes):
        found = overheard(None, **changes).received
        return {me: [(tag, words.shape) for tag, words in found[me]] for me in (ALICE, BOB)}

    assert sizes(ids=(1, 2, 3, 4)) == sizes(ids=(9, 9, 9, 9))


def test_a_pass_costs_what_its_plan_says():
    run = overheard(None, ids=(1, 2, 3))
    assert run.metered == run.plan.cost
