"""What a party of a private chat receives carries no trace of what it must not know."""

import pytest
import torch

from llm_views import KNOWN, check_covers, check_owner, check_user, overheard
from private_llm import answering, speak, tiny
from tacit.llm.private import FORMS


@pytest.mark.parametrize("form", FORMS)
def test_the_owner_receives_uniform_words(form):
    check_owner(form)


@pytest.mark.parametrize("form", FORMS)
def test_what_the_user_sends_is_covered_whatever_else_it_draws(form):
    check_covers(form)


@pytest.mark.parametrize("form", FORMS)
def test_the_user_receives_masked_words_and_values_in_orders_it_cannot_know(form):
    check_user(form)


def dealt_with(prompt, seed):
    """Return all that the dealer receives, without the keys."""
    spoken = speak(tiny("llama", seed=seed), answering(prompt, 6))
    return [
        (tag, words.tolist())
        for tag, words in spoken.received["dealer"]
        if not tag.startswith(("key", "llm/open"))
    ]


def test_the_dealer_receives_the_same_for_every_text_and_every_model():
    assert dealt_with([1, 2, 3], 0) == dealt_with([9, 8, 7], 0) == dealt_with([1, 2, 3], 4)


def test_the_dealer_receives_keys_and_orders_and_nothing_else():
    spoken = speak(tiny("llama"), answering([1, 2, 3], 6))
    kinds = {tag.split("/")[0] for tag, _ in spoken.received["dealer"]}
    assert kinds == {"llm", "key0", "ctl0"}


def test_the_user_can_read_one_entry_of_a_table():
    received = overheard("resent", "user", limit=4).received["user"]
    tables = [words for tag, words in received if tag.startswith("id0")]
    for table in tables:
        in_range = int(((table >= 0) & (table < 40)).sum())
        assert in_range <= 2  # the one that is read, and one by a chance below 1e-5


def test_the_stand_in_for_a_known_generator_gives_zeros():
    received = overheard("resent", "owner", limit=2).received
    keys = [words for tag, words in received["dealer"] if tag.startswith("key0/owner")]
    assert [bytes(words.tolist()) for words in keys] == [KNOWN]
    assert torch.equal(keys[0], torch.full((16,), ord("k"), dtype=torch.uint8))
