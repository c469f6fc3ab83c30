"""Decoding: the writer's words are free, numbers cost, and they stop with the budget."""

import math

import pytest
import torch

from support.models import SIGNS, Signs, dialogues, marked, small_causal
from tacit.dp.policy import by_pattern
from tacit.ring import Prg
from tacit.text import decode
from tacit.text.corpus import Text, redacted, tokenise
from tacit.text.decode import BudgetedWriter, decoder_losses, find_places
from tacit.text.tune import Course, tune
from tacit.text.vote import Ballot, Budget, stack_voters, train_voters

ALL = by_pattern()
VOTERS = 4


@pytest.fixture(scope="module")
def parts():
    corpus = marked(dialogues(60), ALL)
    writer = small_causal()
    course = Course(epochs=12, rate=1e-2, batch=8)
    tune(writer, corpus.redactions(length=48), course, prg=Prg(b"w" * 16))
    adapters = train_voters(
        writer,
        corpus,
        Course(epochs=4, rate=1e-2, batch=8),
        shards=VOTERS,
        length=48,
        rank=2,
        layers=("q", "v"),
        prg=Prg(b"v" * 16),
    )
    return writer, stack_voters(writer, adapters, layers=("q", "v"))


def open_writer(parts, budget, **ballot):
    places = find_places(Signs(), signs="0123456789", most=3)
    return BudgetedWriter(
        *parts,
        ballot=Ballot(**{"voters": VOTERS, "clip": 1.0, **ballot}),
        places=places,
        budget=budget,
        prg=Prg(b"d" * 16),
    )


def say(decoder, text, limit=24):
    spans = ALL(text)
    ids, short = (f(Signs(), text, spans).ids for f in (tokenise, redacted))
    said = decoder.speak(ids, short, choose=lambda scores: int(scores.argmax()), limit=limit)
    return "".join(SIGNS[i - 1] for i in said if i)


def test_numbers_are_filled_in_and_paid_for_to_the_ninth_digit(parts):
    budget = Budget(150.0)
    said = say(open_writer(parts, budget), "医生您好，我今")
    assert said.startswith("年")
    assert "□" not in said
    numbers = [one for one in said if one.isdigit()]
    assert numbers
    event = open_writer(parts, Budget(1.0)).ballot.event
    assert len(budget.ledger) >= len(numbers)
    assert abs(budget.spent - len(budget.ledger) * 4 * 1.0 / VOTERS) < 1e-9
    assert all(entry.event == event for entry in budget.ledger.entries)


@pytest.mark.parametrize(
    ("says", "said", "asked"),
    [
        ((4, 1, 7), "417", 3),  # as many as a place may have: nobody is asked where it ends
        ((4, 10), "4", 2),  # the end is a vote as well
        ((10,), "□", 1),
    ],
)
def test_every_token_of_a_place_and_its_end_are_paid_for(parts, monkeypatch, says, said, asked):
    """One event for a place would be an ε up to six times too small."""
    budget, votes = Budget(199.0), []

    def scripted(weights, prg):
        votes.append(len(weights))
        return says[(len(votes) - 1) % len(says)]

    monkeypatch.setattr(decode, "draw", scripted)
    writer = open_writer(parts, budget)
    reading = decode._Reading(writer._voters, VOTERS + 1, [1, 2, 3], torch.device("cpu"))
    for place in (1, 2, 3):
        filled = writer._fill(reading)
        assert "".join(SIGNS[i - 1] for i in filled) == said.replace("□", "")
        assert len(votes) == len(budget.ledger) == place * asked
    assert budget.spent == pytest.approx(3 * asked * writer.ballot.event.epsilon)


def test_places_stay_open_when_the_budget_does_not_last_for_a_number(parts):
    budget = Budget(4.5)
    decoder = open_writer(parts, budget)
    said = say(decoder, "医生您好，我今")
    again = say(decoder, "医生您好，我今")
    assert "□" in again
    assert not any(one.isdigit() for one in again)
    assert decoder.refused >= 1
    assert budget.spent <= 4.5
    assert len(said) > 0


def test_the_words_of_the_writer_do_not_depend_on_what_voters_say(parts):
    """Neighbours: voters that say something else altogether; the text around numbers stays."""
    writer, voters = parts
    names = [name for name, layer in voters.named_modules() if hasattr(layer, "downs")]
    layers = {name: voters.get_submodule(name) for name in names}
    loud = {
        n: (torch.ones_like(one.downs[0]), torch.ones_like(one.ups[0])) for n, one in layers.items()
    }
    public = {n: (one.downs[-1], one.ups[-1]) for n, one in layers.items()}
    other = stack_voters(writer, [*[loud] * VOTERS, public], layers=("q", "v"))
    outs = []
    for those in (voters, other):
        said = say(open_writer((writer, those), Budget(150.0)), "医生您好，我今", limit=30)
        outs.append("".join(one for one in said if not one.isdigit()))
    size = min(map(len, outs)) - 6
    assert size > 10
    assert outs[0][:size] == outs[1][:size]


def test_the_perplexity_of_a_decoder_is_exact_and_spends_nothing(parts):
    budget = Budget(1.0)
    decoder = open_writer(parts, budget)
    text = "医生您好，我今年35岁，头痛。每天吃药3片。"
    spans = ALL(text)
    pair = tokenise(Signs(), text, spans), redacted(Signs(), text, spans)
    total, tokens, misses = decoder_losses(decoder, *parts, *pair)
    assert budget.spent == 0
    assert (tokens, misses) == (len(text) - 1, 0)
    assert 1 < math.exp(total / tokens) < 20
    wide = "我今年三十岁"
    pair = tokenise(Signs(), wide, ALL(wide)), redacted(Signs(), wide, ALL(wide))
    assert decoder_losses(decoder, *parts, *pair)[2] == 2


def test_a_shard_without_owners_votes_as_the_public_model(parts):
    writer, _ = parts
    corpus = marked([Text(text="我今年35岁", owner="one")], ALL)
    adapters = train_voters(
        writer,
        corpus,
        Course(epochs=1, rate=1e-2, batch=8),
        shards=3,
        length=16,
        rank=2,
        layers=("q", "v"),
        prg=Prg(b"z" * 16),
    )
    stacked = stack_voters(writer, adapters, layers=("q", "v"))
    ids = torch.tensor(Signs().pieces("我今年35岁")[0])
    with torch.no_grad():
        every = stacked(ids.expand(4, 1, -1))
    same = [torch.equal(one, every[-1]) for one in every[:-1]]
    assert sorted(same) == [False, True, True]
