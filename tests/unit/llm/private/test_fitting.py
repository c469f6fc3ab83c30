"""A precision that fits a model: as fine as may be, and far enough."""

from dataclasses import replace

import pytest

from private_llm import MEETING, answering, plainly, speak, tiny
from tacit.errors import FrameError, RangeError
from tacit.llm.private import Precision, fit_precision
from tacit.llm.private.fitting import fit_reach
from tacit.llm.private.precision import WORD_BITS
from tacit.llm.private.setup import learn_precision
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


@pytest.mark.parametrize("bits", [(40,) * 9, (13, 24, 13, 13, 14, 20, 12, 18, 20)])
def test_an_announced_precision_that_cannot_be_is_refused(bits):
    with pytest.raises(FrameError, match="party 'owner' failed: announces a precision that cannot"):
        run_threads(
            {
                "owner": lambda session: session.publish("precision", bits),
                "user": lambda session: learn_precision(session, "owner"),
                "dealer": lambda session: learn_precision(session, "owner"),
            },
            MEETING,
        )
