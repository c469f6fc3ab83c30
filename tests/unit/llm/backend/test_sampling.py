import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import ConfigError, DataError
from tacit.llm import Sampling, choose, chooser
from tacit.ring import Prg

SCORES = torch.tensor([1.0, 3.0, -2.0, 2.0, 0.5])


def draws(sampling, count, scores=SCORES):
    take = chooser(sampling)
    return [take(scores, ()) for _ in range(count)]


def test_no_temperature_takes_the_best():
    assert draws(Sampling(top_k=3, top_p=0.5), 5) == [1] * 5


def test_draws_follow_the_softmax():
    # Chi-square with 4 degrees of freedom; the seed is fixed, the false-alarm rate would be 1e-4.
    count = 4000
    found = draws(Sampling(temperature=1.5, seed=7), count)
    odds = (SCORES / 1.5).softmax(0)
    chi2 = sum((found.count(i) - count * p) ** 2 / (count * p) for i, p in enumerate(odds.tolist()))
    assert chi2 < 23.5


def test_top_k_keeps_the_k_best():
    assert set(draws(Sampling(temperature=5.0, top_k=2, seed=1), 200)) == {1, 3}


def test_top_p_keeps_the_fewest_that_reach_it():
    odds = SCORES.softmax(0)
    assert odds[1] < 0.8 < odds[1] + odds[3]
    assert set(draws(Sampling(temperature=1.0, top_p=0.8, seed=1), 300)) == {1, 3}
    assert set(draws(Sampling(temperature=1.0, top_p=1e-9, seed=1), 20)) == {1}


def test_the_same_seed_draws_the_same_and_another_does_not():
    first, again, other = (draws(Sampling(temperature=2.0, seed=seed), 60) for seed in (3, 3, 4))
    assert first == again != other


def test_without_a_seed_every_chooser_draws_its_own():
    # Equal by chance with a probability below 0.6^200.
    assert draws(Sampling(temperature=2.0), 200) != draws(Sampling(temperature=2.0), 200)


def test_a_penalty_pushes_repeated_tokens_down():
    prg = Prg(bytes(16))
    penalised = Sampling(repetition_penalty=2.0)
    assert choose(SCORES, penalised, prg, earlier=[1, 1]) == 3
    assert choose(SCORES, penalised, prg, earlier=[3]) == 1
    negative = torch.tensor([-1.0, -1.5])
    assert choose(negative, penalised, prg, earlier=[0]) == 1


@given(order=st.permutations(range(5)), seed=st.integers(0, 2**40), penalty=st.booleans())
def test_a_choice_does_not_depend_on_the_order_of_the_scores(order, seed, penalty):
    sampling = Sampling(
        temperature=1.0, top_k=4, top_p=0.9, seed=seed, repetition_penalty=2.5 if penalty else 1.0
    )
    straight = chooser(sampling)(SCORES, [1])
    shuffled = chooser(sampling)(SCORES[list(order)], [order.index(1)])
    assert order[shuffled] == straight


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"repetition_penalty": 0.0},
    ],
)
def test_settings_without_a_meaning_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Sampling(**wrong)


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(DataError, match="finite"):
        choose(torch.tensor([1.0, math.nan]), Sampling(), Prg(bytes(16)))
