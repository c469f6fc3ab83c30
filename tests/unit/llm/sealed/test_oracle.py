"""What a user of a sealed chat learns of scores by its choice of noise, and by cheating."""

from unittest import mock

import pytest
import torch

from support.llm import ERROR, as_user, say, tiny
from tacit.errors import ConfigError
from tacit.llm import Sampling, logits
from tacit.llm.sealed import SealedMemory, check_wish, table, talk
from tacit.llm.sealed.program import Passing
from tacit.mpc import Share

VOCAB, BITS = 12, 6
MODEL = tiny("llama", seed=2, layers=1, vocab=VOCAB, width=8, heads=2, kv_heads=1, ffn=8)
IDS, FIRST, SECOND = [1, 5, 7], 3, 11


def gap():
    scores = logits(MODEL, IDS)[-1]
    return float(scores[FIRST] - scores[SECOND])


def bisected(client, ask):
    """Find the difference of two scores: one token of answer for each bit."""
    low, high = -4.0, 4.0
    for _ in range(BITS):
        middle = (low + high) / 2
        offset = torch.full((1, VOCAB), -60.0, dtype=torch.float64)  # the others never win
        offset[0, FIRST], offset[0, SECOND] = 0.0, middle
        with ask(offset):
            (token,) = say(client, SealedMemory(), IDS, 1)
        low, high = (middle, high) if token == FIRST else (low, middle)
    return (low + high) / 2


def chosen_noise(offset):
    """Hand in noise that is not noise; everything else is the user's own code."""

    def wish(*asked, **facts):
        return {"slopes": torch.stack([torch.ones(VOCAB), torch.zeros(VOCAB)]), "noise": offset}

    return mock.patch.object(talk, "wish", wish)


def test_a_user_with_noise_of_its_own_compares_scores_as_it_likes():
    """The ledger's sentence: six tokens, and the difference of two scores to six bits."""
    found, leaks = as_user(MODEL, lambda client: bisected(client, chosen_noise))
    assert abs(found - gap()) < 8 / 2**BITS + ERROR
    (told,) = (leak for leak in leaks if "compare" in leak.what)
    assert (told.to, told.elements) == ("user", BITS)


def test_with_the_noise_of_the_dealer_there_is_none_to_choose():
    """The same user gets the model's best token at temperature 0, whatever it would hand in."""

    def ask(client):
        with chosen_noise(torch.full((1, VOCAB), 60.0)):
            return say(client, SealedMemory(), IDS, 1)

    said, leaks = as_user(MODEL, ask, reveal="sample")
    assert said == [int(logits(MODEL, IDS)[-1].argmax())]
    assert not any("compare" in leak.what for leak in leaks)


def test_a_user_who_departs_from_the_protocol_compares_scores_all_the_same():
    """What the claim of ``sample`` says: who adds to its share of the scores chooses its noise."""

    class Departing(Passing):
        def _drawn(self, ops, scores):
            out = super()._drawn(ops, scores)
            if not isinstance(out, Share):
                return out
            added = (self.bounds["offset"] * 2.0**out.spec.frac_bits).round().long()
            return Share(out.words + added, out.spec)

    def ask(client):
        usual = client._table.passing

        def departing(offset):
            fields = {name: getattr(usual, name) for name in usual.__dataclass_fields__}
            fields["bounds"] = {**usual.bounds, "offset": offset}
            return mock.patch.object(client._table, "passing", Departing(**fields))

        return bisected(client, departing)

    found, _ = as_user(MODEL, ask, reveal="sample")
    assert abs(found - gap()) < 8 / 2**BITS + ERROR


def test_the_dealers_noise_counts_at_the_temperature_of_the_user():
    noise = torch.zeros(1, VOCAB, dtype=torch.float64)
    noise[0, SECOND] = 30.0

    def ask(client):
        with mock.patch.object(table, "gumbel", return_value=noise):
            return [say(client, SealedMemory(), IDS, 1, temperature=heat)[0] for heat in (0.0, 1.0)]

    said, _ = as_user(MODEL, ask, reveal="sample")
    assert said == [int(logits(MODEL, IDS)[-1].argmax()), SECOND]


@pytest.mark.parametrize("wish", [{"seed": 3}, {"repetition_penalty": 1.2}, {"top_k": 3}])
def test_what_the_dealers_draw_does_not_offer_is_refused(wish):
    check_wish(Sampling(temperature=0.7), "sample")
    with pytest.raises(ConfigError, match="leave them out"):
        check_wish(Sampling(**wish), "sample")
