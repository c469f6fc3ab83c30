"""What a party of a private chat receives carries no trace of what it must not know."""

import pytest
import torch

from support.llm import answering, best, speak, tiny
from support.llm_views import (
    KNOWN,
    check_answer_masks,
    check_lean,
    check_owner,
    check_user,
    overheard,
    without,
)
from tacit.llm.permuted import FORMS, Conversation


@pytest.mark.parametrize("form", FORMS)
def test_the_owner_receives_uniform_words(form):
    check_owner(form)


@pytest.mark.parametrize("form", ["incremental", pytest.param("resent", marks=pytest.mark.slow)])
def test_masked_words_are_uniform_where_the_user_never_sees_queries_keys_and_values(form):
    check_lean(form)


@pytest.mark.parametrize(
    "label", ["#.qkv.mask", pytest.param("#.project.answer_mask", marks=pytest.mark.slow)]
)
def test_a_missing_mask_is_noticed_there_too(label):
    with without("words", label), pytest.raises(AssertionError):
        check_lean("incremental")


@pytest.mark.parametrize("form", FORMS)
def test_what_the_user_sends_is_covered_whatever_else_it_draws(form):
    check_answer_masks(form)


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "glm4"])
def test_the_owner_receives_uniform_words_of_newer_models_too(family):
    check_owner("incremental", family)


@pytest.mark.parametrize("family", ["qwen3", "glm4"])
def test_the_user_sees_newer_models_in_orders_it_cannot_know_too(family):
    check_user("incremental", family)


@pytest.mark.parametrize("part", ["noise", "mask", "answer_mask", "h.mask"])
def test_a_missing_mask_of_a_norm_behind_attention_is_noticed(part):
    with without("words", f"#.post#.{part}"), pytest.raises(AssertionError):
        check_owner("incremental", "glm4")


@pytest.mark.parametrize("label", ["#.project.q heads", "#.project.q", "#.project.k norm"])
def test_an_order_of_heads_or_within_them_that_is_missing_is_noticed(label):
    with without("shuffles", label), pytest.raises(AssertionError):
        check_user("incremental", "qwen3")


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
        assert in_range <= 3  # the one that is read; a third other by a chance below 1e-12


def test_the_stand_in_for_a_known_generator_gives_zeros():
    received = overheard("resent", "owner", limit=2).received
    keys = [words for tag, words in received["dealer"] if tag.startswith("key0/owner")]
    assert [bytes(words.tolist()) for words in keys] == [KNOWN]
    assert torch.equal(keys[0], torch.full((16,), ord("k"), dtype=torch.uint8))


def test_counts_are_shown_in_the_order_of_the_scores_and_say_what_came_before():
    sights = []

    def adjust(scores, counts):
        sights.append((scores, counts))
        return scores

    def talk(client):
        conversation = Conversation(client)
        tokens = list(conversation.generate([3, 7, 7], best, limit=5, adjust=adjust))
        conversation.close()
        return tokens

    tokens = speak(tiny("llama"), talk, counts=True).value
    said = [3, 7]
    for token, (scores, counts) in zip(tokens, sights, strict=True):
        assert int(counts.sum()) == len(said)  # a prompt's tokens count once, chosen ones each time
        assert int(counts[best(scores)]) == said.count(token)
        said.append(token)
