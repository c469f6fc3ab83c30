"""A precision that fits a model: as fine as may be, and far enough."""

from dataclasses import replace

import pytest
import torch

from support.llm import FAMILIES, MEETING, answering, plainly, speak, tiny
from tacit.errors import FrameError, RangeError
from tacit.llm import logits
from tacit.llm.model.plain import streams
from tacit.llm.permuted import Conversation, Precision, fit_precision, fitting
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.fitting import bound_model, fit_reach
from tacit.llm.permuted.masks import Ranges
from tacit.llm.permuted.messages import wrap
from tacit.llm.permuted.precision import WORD_BITS
from tacit.llm.permuted.setup import PRECISION, learn_precision
from tacit.party import run_threads

IDS = [3, 7, 11, 5]


def grown(family, factor):
    """Return a model whose stream is larger, and whose answers are what they were."""
    model = tiny(family, seed=3)
    weights = dict(model.weights)
    names = ["embed", *(f"layers.{i}.{part}.weight" for i in range(2) for part in ("o", "down"))]
    for name in names:
        weights[name] = weights[name] * factor
    return replace(model, weights=weights)


@pytest.mark.parametrize("reach", range(10, 27, 2))
@pytest.mark.parametrize("less", [0, 1, 3, 8])
def test_every_reach_has_a_precision_whose_words_are_used_up(reach, less):
    raw = max(10, reach - less)
    found = fit_reach(reach, raw)
    assert found.reach == reach
    assert found.raw == WORD_BITS - raw
    assert found.middle <= WORD_BITS - reach
    assert min(found.query, found.attention) == min(16, (WORD_BITS - reach - found.weight) // 2)


def test_a_model_of_small_values_has_finer_weights_than_one_of_large_values():
    small, large = (fit_precision(grown("llama", factor)) for factor in (1.0, 4000.0))
    assert small.weight > Precision().weight > large.weight
    assert small.reach < large.reach


@pytest.mark.parametrize("family", ["llama", "gpt2", "chatglm"])
def test_without_a_choice_everyone_uses_the_precision_that_fits_the_model(family):
    model = tiny(family, seed=3)

    def talk(client):
        return client.plan.precision, answering(IDS, 6)(client)

    assert speak(model, talk).value == (fit_precision(model), plainly(model, IDS, 6))


def test_large_streams_that_no_preset_holds_are_served():
    model = grown("llama", 5000.0)
    with pytest.raises(RangeError, match="comes near"):
        speak(model, answering(IDS, 3), precision=Precision())
    assert speak(model, answering(IDS, 3)).value == plainly(model, IDS, 3)


def test_a_model_whose_values_leave_no_room_is_refused():
    with pytest.raises(RangeError, match="too few bits"):
        fit_precision(grown("llama", 1e8))


def test_a_model_that_is_not_finite_is_refused():
    with pytest.raises(RangeError, match="not finite"):
        fit_precision(grown("llama", float("inf")))


@pytest.mark.parametrize("bits", [(40,) * 13, (13, 24, 13, 13, 14, 20, 12, 18, 20, 12, 0, 0, 0)])
def test_an_announced_precision_that_cannot_be_is_refused(bits):
    with pytest.raises(FrameError, match="party 'owner' failed: announces a precision that cannot"):
        run_threads(
            {
                "owner": lambda session: session.publish(PRECISION, bits),
                "user": lambda session: learn_precision(session, "owner"),
                "dealer": lambda session: learn_precision(session, "owner"),
            },
            MEETING,
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_no_text_exceeds_what_the_weights_allow(family, monkeypatch):
    """Every kind of wire that a user is shown, in long random texts, stays below its bound."""
    model = tiny(family, seed=5)
    exact = bound_model(model)
    most = {}

    def noting(ranges, words, nbytes, frac_bits, wire):
        kind = wire if wire.startswith(("out", "last")) else wire.split(".", 1)[1]
        most[kind] = max(most.get(kind, 0.0), float(words.abs().max()) * 2.0**-frac_bits)

    monkeypatch.setattr(Ranges, "note_words", noting)
    ids = torch.randint(40, (56,), generator=torch.Generator().manual_seed(1)).tolist()
    speak(model, answering(ids, 6))
    is_rms = model.architecture.norm == "rms"
    stream = max(most["project.x"], most["out.x" if is_rms else "last.x"])
    assert stream < exact.stream
    assert most["middle.x"] < exact.attended + (0 if family == "chatglm" else stream)
    assert max(most["act.up"], most.get("act.gate", 0.0)) < exact.normed
    assert is_rms or most["out.scores"] < exact.normed
    assert most.get("post1.x", 0.0) < exact.attended
    assert most.get("post2.x", 0.0) < exact.stream
    assert most["scores"] < exact.scores
    (found,) = streams(model, [ids])
    assert float(found[0].norm(dim=1).max()) < exact.embedded
    lengths = max(float(x.norm(dim=1).max()) for x in found)
    names = ("q", "k", "v", "q norm", "k norm")
    products = max(most.get(f"project.{part}", 0.0) for part in names)
    assert products < exact.readers * lengths


def spiked(strength):
    """Return a model that one token drives far, and the token that it is measured on instead.

    It goes far in one place of the stream, which only the last norms read.
    """
    model = tiny("llama", seed=4)
    weights = dict(model.weights)
    direction = weights["embed"][7] / weights["embed"][7].norm()
    for part in ("gate", "up"):
        name = f"layers.0.{part}.weight"
        weights[name] = weights[name] + strength * direction
    weights["layers.0.down.weight"] = weights["layers.0.down.weight"].clone()
    weights["layers.0.down.weight"][[i for i in range(16) if i != 3]] = 0
    for name in [*(f"layers.1.{part}.weight" for part in "qkv"), "output.weight"]:
        weights[name] = weights[name].clone()
        weights[name][:, 3] = 0
    calm = int((weights["embed"] @ direction).abs().argmin())
    return replace(model, weights=weights), calm


def last_scores(model, precision):
    def talk(client):
        conversation = Conversation(client)
        scores = conversation.score([7])
        conversation.close()
        return scores

    return speak(model, talk, precision=precision).value


STRENGTHS = range(0, 48, 6)


@pytest.mark.parametrize("is_certain", [True, False])
def test_what_goes_too_far_is_refused_or_right_at_the_fitted_precision(monkeypatch, is_certain):
    """The model is measured on a calm token and asked about one that goes much further.

    Without the bounds that the owner knows from its weights, as the presets are, some of these
    wrap around and nobody notices: that is what the page says of them.
    """
    wrong = served = 0
    for strength in STRENGTHS:
        model, calm = spiked(strength)
        monkeypatch.setattr(fitting, "_texts", lambda a, calm=calm: [[calm]])
        precision = fit_precision(model)
        assert precision.gain > 0
        if not is_certain:
            precision = replace(precision, far=0, gain=0, output_gain=0)
        try:
            scores = last_scores(model, precision)
        except RangeError:
            continue
        served += 1
        plain = logits(model, [7])[-1].double()
        wrong += float((scores[0].sort().values - plain.sort().values).abs().max()) > 0.1
    assert served > 0
    assert bool(wrong) != is_certain


def test_a_preset_misses_one_value_in_four_and_only_from_seven_times_its_limit_on():
    """5,000 words of 5 bytes; a rate further than 0.04 from a quarter once in 10^10 times."""
    ranges = Ranges(Blueprint(tiny("llama").architecture, Precision()))

    def is_missed(value):
        ranges.note_words(wrap(value.view(1), 5), 5, 20, "x")
        try:
            ranges.check()
        except RangeError:
            return False
        return True

    limit = 1 << 37
    draw = torch.Generator().manual_seed(0)
    near = torch.randint(limit, 7 * limit, (500,), generator=draw)
    assert not any(is_missed(value) for value in near)
    beyond = torch.randint(1 << 41, 1 << 60, (5000,), generator=draw)
    assert abs(sum(is_missed(value) for value in beyond) / 5000 - 0.25) < 0.04
