"""Canaries of signs that are several tokens: the same losses as the texts that they spell."""

import itertools

import pytest
import torch

from tacit.audit.memorisation import Format, SeenSpeech, exact_exposures
from tacit.audit.memorisation.canary import spell_canary
from tacit.errors import ConfigError
from tacit.llm.model.module import CausalModule, tiny_model


@pytest.fixture(scope="module")
def seen():
    module = CausalModule(tiny_model(20, width=16, layers=1, seed=3))

    def answer(ids):
        with torch.no_grad():
            return module(ids)

    return SeenSpeech(answer=answer, vocab=20, context=64)


def test_single_tokens_rank_as_ever(seen):
    form = Format(prefix=(1, 2), alphabet=(5, 7, 9), blanks=3)
    view, spelled = spell_canary(seen, (1, 2), [(5,), (7,), (9,)], blanks=3)
    first = [one.value for one in exact_exposures(seen, form, range(27))]
    second = [one.value for one in exact_exposures(view, spelled, range(27))]
    assert first == pytest.approx(second)


def test_signs_of_different_lengths_rank_by_what_they_spell(seen):
    signs = [(5,), (6, 7), (6, 8), (9, 10)]
    view, spelled = spell_canary(seen, (1, 2), signs, blanks=2)
    losses = []
    for pair in itertools.product(signs, repeat=2):
        ids = torch.tensor([[1, 2, *pair[0], *pair[1]]])
        losses.append(float(seen.losses(ids)[0, 1:].sum()))
    ranks = torch.tensor(losses).argsort().argsort()
    found = [one.value for one in exact_exposures(view, spelled, range(16))]
    assert torch.tensor(found).argsort(descending=True).argsort().tolist() == ranks.tolist()


@pytest.mark.parametrize("signs", [[(1,), (1, 2)], [(), (1,)], [(1,), (1,)]])
def test_signs_that_cannot_be_told_apart_are_refused(seen, signs):
    with pytest.raises(ConfigError, match="none may begin another"):
        spell_canary(seen, (1,), signs, blanks=1)
