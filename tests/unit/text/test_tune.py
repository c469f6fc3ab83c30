"""Fine-tuning: redacted texts first, then (ε, δ); what a policy misses, and who is protected."""

import copy
import re

import pytest
import torch

from support.models import SIGNS, Signs, dialogues, marked, small_causal
from tacit.dp import ADD_REMOVE_CLIENT_MARKS, ADD_REMOVE_MARKS, confirm
from tacit.dp.ghost import Ghost
from tacit.dp.policy import by_pattern, by_tagger, by_terms
from tacit.errors import ConfigError, DataError
from tacit.llm.model.module import language_model
from tacit.nn import add_adapters, merge_adapters
from tacit.ring import Prg
from tacit.text.corpus import Text, collate, mark_corpus, redacted, tokenise
from tacit.text.tune import (
    Course,
    measure_perplexity,
    measure_scientificity,
    token_losses,
    tune,
    tune_private,
    unit_losses,
)

ALL = by_pattern()
COURSE = Course(epochs=1, rate=3e-3, batch=8)


def spelled(ids):
    return "".join("?" if i == 0 else SIGNS[i - 1] for i in ids)


def test_redacted_texts_of_neighbours_are_the_same():
    """What the first phase sees does not depend on what is marked: neither on digits nor length."""
    one, other = (marked([Text(text=f"我今年{age}岁", owner="a")], ALL) for age in ("7", "1234"))
    assert one.short == other.short
    assert one.texts != other.texts
    assert spelled(one.short[0].ids) == "我今年□岁"


@pytest.mark.parametrize("has_stand_ins", [False, True])
def test_the_first_phase_makes_the_same_model_whatever_was_marked(has_stand_ins):
    models = []
    for digits in ("12", "9876", "三十"):
        corpus = marked([Text(text=f"我今年{digits}岁，头痛", owner="a"), *dialogues(9)], ALL)
        module = small_causal()
        stand_ins = Prg(b"f" * 16) if has_stand_ins else None
        tune(module, corpus.redactions(length=32, stand_ins=stand_ins), COURSE, prg=Prg(b"o" * 16))
        models.append(module.state_dict())
    for other in models[1:]:
        assert all(torch.equal(models[0][name], other[name]) for name in other)


def test_stand_ins_are_random_numbers_of_both_scripts_in_the_same_places():
    corpus = marked([Text(text="我今年8888岁，吃药7片", owner=str(n)) for n in range(40)], ALL)
    rows = corpus.redactions(length=40, stand_ins=Prg(b"f" * 16)).rows
    texts = [spelled(row.ids.tolist()) for unit in rows for row in unit]
    assert all(
        re.fullmatch(
            "我今年[0-9一二三四五六七八九十]{1,3}岁，吃药[0-9一二三四五六七八九十]{1,3}片", t
        )
        for t in texts
    )
    assert len(set(texts)) > 20
    assert not any("8888" in text for text in texts)


def test_spared_tokens_stay_as_likely_as_they_were():
    corpus = marked(dialogues(30), ALL)
    units, digits = corpus.redactions(length=48), [Signs().pieces(d)[0][0] for d in "0123456789"]
    odds = []
    for spared in ([], digits):
        module = small_causal()
        course = Course(epochs=6, rate=1e-2, batch=8)
        tune(module, units, course, prg=Prg(b"s" * 16), spared=spared)
        with torch.no_grad():
            scores = module(torch.tensor([Signs().pieces("我今年")[0]]))[0, -1]
        odds.append(float(scores.log_softmax(0)[digits].logsumexp(0)))
    assert odds[1] > odds[0] + 2


def test_a_policy_that_misses_lets_the_first_phase_see_it():
    """The attack: a number in the other script stays, under a policy of digits."""
    corpus = marked([Text(text="我的单号是五四一六八四，吃药3片", owner="a")], by_pattern("digits"))
    assert spelled(corpus.short[0].ids) == "我的单号是五四一六八四，吃药□片"
    assert spelled(marked([Text(text="我的单号是五四一六八四", owner="a")], ALL).short[0].ids) == (
        "我的单号是□"
    )


def test_marked_parts_are_spelled_sign_by_sign_and_text_around_them_as_ever():
    class Pairs:
        """Joins two characters into one token."""

        def pieces(self, text):
            cuts = [(i, min(i + 2, len(text))) for i in range(0, len(text), 2)]
            return [hash(text[a:b]) for a, b in cuts], cuts

    text = "我今年35岁了"
    found = tokenise(Pairs(), text, ALL(text))
    assert found.offsets == ((0, 2), (2, 3), (3, 4), (4, 5), (5, 7))
    assert found.is_private == (False, False, True, True, False)
    short = redacted(Pairs(), text, ALL(text))
    assert sum(short.is_private) == 1


def test_a_text_that_is_long_is_cut_and_every_token_is_predicted_once():
    corpus = marked([Text(text="我今年三十五岁，头痛。" * 9, owner="a")], ALL)
    units = corpus.originals(length=10, by_owner=False)
    assert len(units) == 1
    assert units.counted == len(corpus.texts[0].ids) - 1
    module = small_causal()
    whole = token_losses(module, torch.tensor([corpus.texts[0].ids]))
    assert whole.shape == (1, len(corpus.texts[0].ids) - 1)


def test_empty_texts_are_left_out_and_counted_and_repeated_ones_too():
    texts = [Text(text="", owner="a"), Text(text=" \n", owner="b"), *dialogues(2)]
    twice = Text(text=texts[2].text, owner="somebody else")
    corpus = marked([*texts, twice], ALL)
    assert (corpus.left_out, corpus.repeated, len(corpus.texts)) == (2, 1, 3)
    with pytest.raises(ConfigError, match="every text is empty"):
        marked([Text(text="", owner="a")], ALL).originals(length=9, by_owner=True)


def test_a_policy_that_marks_everything_or_nothing_is_refused_in_words():
    nothing = marked(dialogues(3), by_terms(["nowhere"]))
    with pytest.raises(ConfigError, match="marks nothing in 3 texts"):
        nothing.redactions(length=32)
    everything = marked(dialogues(3), by_tagger(lambda text: [(0, len(text), "all")]))
    with pytest.raises(ConfigError, match="marks every token of 3 texts"):
        everything.redactions(length=32)


def test_another_script_is_no_error():
    corpus = marked([Text(text="пациент 45 лет", owner="a"), *dialogues(1)], ALL)
    assert sum(corpus.texts[0].is_private) == 2


@pytest.mark.parametrize("by_owner", [False, True])
def test_private_tuning_spends_what_is_said_and_a_second_accountant_agrees(by_owner):
    texts = [*dialogues(30), *(Text(text=f"我的单号是{n}", owner="many") for n in range(5))]
    corpus = marked(texts, ALL)
    module = add_adapters(small_causal(), rank=2, seed=0, only=("q", "v"))
    units = corpus.originals(length=32, by_owner=by_owner, stresses_marks=True)
    assert len(units) == (31 if by_owner else 35)
    relation = ADD_REMOVE_CLIENT_MARKS if by_owner else ADD_REMOVE_MARKS
    private = tune_private(
        module,
        units,
        Course(epochs=2, rate=1e-2, batch=8, at_once=200),
        epsilon=2.0,
        delta=1e-3,
        clip=1.0,
        relation=relation,
        prg=Prg(b"p" * 16),
    )
    assert 1.9 < private.claim.epsilon <= 2.0
    assert private.claim.relation == str(relation)
    assert confirm(private.ledger, private.claim).epsilon <= 2.02
    assert language_model(merge_adapters(module)).weights.keys()


def test_an_owner_moves_the_sum_by_no_more_than_the_clip_however_many_texts_it_has():
    corpus = marked(
        [*dialogues(4), *(Text(text="我的单号是541684", owner="many") for _ in range(10))], ALL
    )
    module = small_causal(layers=1)
    ghost = Ghost(module)
    units = corpus.originals(length=32, by_owner=True)

    def clipped(chosen):
        ids, weights = collate(chosen)
        found = ghost.clipped_sum(unit_losses(module, ids, weights), 0.1)
        return torch.cat([one.flatten() for one in found.values()])

    every = [units[i] for i in range(len(units))]
    assert len(every[-1]) == 10
    moved = clipped(every) - clipped(every[:-1])
    assert float(moved.norm()) <= 0.1 * (1 + 1e-3)
    assert float(moved.norm()) > 0.05


def test_perplexity_is_that_of_torch_and_scientificity_counts_terms_alone():
    texts = dialogues(6)
    corpus = marked(texts, ALL)
    module = small_causal()
    found = measure_perplexity(module, corpus.texts, length=64, batch=2)
    losses = [token_losses(module, torch.tensor([one.ids])).flatten() for one in corpus.texts]
    assert found.value == pytest.approx(torch.cat(losses).mean().exp().item(), rel=1e-5)
    assert found.low < found.value < found.high
    terms = by_terms(["头痛"])
    science = measure_scientificity(module, [t.text for t in texts], Signs(), terms, length=64)
    assert science.samples == 2 * len(texts)
    with pytest.raises(DataError, match="none of 6 texts holds a term"):
        measure_scientificity(module, [t.text for t in texts], Signs(), by_terms(["x"]), length=64)


def test_tuning_teaches_and_a_course_that_makes_no_sense_is_refused():
    corpus = marked(dialogues(40), ALL)
    module = small_causal()
    before = measure_perplexity(module, corpus.texts, length=64).value
    fresh = copy.deepcopy(module)
    tune(
        fresh,
        corpus.originals(length=64, by_owner=False),
        Course(epochs=4, rate=1e-2, batch=8),
        prg=Prg(b"x" * 16),
    )
    assert measure_perplexity(fresh, corpus.texts, length=64).value < before / 4
    with pytest.raises(ConfigError, match="above 0"):
        Course(epochs=0, rate=1)
    assert mark_corpus(dialogues(1), Signs(), ALL, starts=[7], ends=[0]).texts[0].ids[
        :: len(dialogues(1)[0].text) + 1
    ] == (7, 0)
