"""A small real model, where it is: sealed answers are the plain ones within the stated error."""

from pathlib import Path

import pytest

import tacit
from support.llm import MEETING
from tacit.data import search_path
from tacit.llm import Cache, Sampling, next_logits, open_checkpoint
from tacit.llm.sealed import (
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import run_threads

pytestmark = pytest.mark.data

LIMIT = 16
ERROR = 0.05
"""Twice this is how near two scores must be for a token to be another one than the plain one."""
TEXTS = [
    "Once upon a time, there was a little girl",
    "One day",
    "Lily saw a big dog",
    "The sun was warm and Tom",
]


def checkpoint(name):
    folders = search_path(None, Path(tacit.__file__).parent, Path("nowhere"))
    for folder in folders:
        if (folder / name).is_dir():
            return open_checkpoint(folder / name)
    return pytest.skip(f"no {name} in any of {', '.join(map(str, folders))}")


def answers(model, prompts):
    """Return the greedy sealed answer to each prompt."""
    vault = open_sealed_vault(model)

    def use(session):
        client = SealedClient(session, model.architecture)
        out = [
            list(client.generate(SealedMemory(), ids, Sampling(), limit=LIMIT)) for ids in prompts
        ]
        client.leave()
        return out

    programs = {
        "owner": lambda session: serve_sealed_owner(session, vault),
        "user": use,
        "dealer": lambda session: serve_sealed_dealer(session, model.architecture),
    }
    return run_threads(programs, MEETING)["user"]


@pytest.mark.slow
def test_stories_are_those_of_the_plain_model():
    found = checkpoint("lm_stories260k")
    model, tokenizer = found.load(), found.tokenizer()
    prompts = [[1, *tokenizer.encode(text)] for text in TEXTS]
    for ids, answer in zip(prompts, answers(model, prompts), strict=True):
        assert len(answer) == LIMIT
        cache, fresh = Cache(), ids
        for place, token in enumerate(answer):
            scores = next_logits(model, fresh, cache)
            best = float(scores.max())
            assert best - float(scores[token]) < 2 * ERROR, f"prompt {ids}, token {place}"
            fresh = [token]
