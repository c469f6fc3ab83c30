"""The two small real models, where they are: private answers are the plain ones, token by token."""

import math
from pathlib import Path
from unittest import mock

import pytest
import torch

import tacit
from support.llm import best, speak
from tacit.data import search_path
from tacit.llm import Cache, next_logits, open_checkpoint, perplexity
from tacit.llm.permuted import Conversation
from tacit.llm.permuted.serving import Serving

pytestmark = pytest.mark.data

STORIES = [
    f"{opening} {hero}"
    for opening in ("Once upon a time, there was", "One day", "Lily saw", "The sun was warm and")
    for hero in ("a little girl", "a big dog", "a small bird", "Tom", "an old tree")
]
QUESTIONS = [
    f"{ask}{topic}"
    for ask in ("请介绍一下", "为什么要学习", "请写一首关于", "我想了解")
    for topic in ("春天", "数学", "北京", "人工智能", "音乐")
]
TIE = 1e-3


def checkpoint(name):
    folders = search_path(None, Path(tacit.__file__).parent, Path("nowhere"))
    for folder in folders:
        if (folder / name).is_dir():
            return open_checkpoint(folder / name)
    return pytest.skip(f"no {name} in any of {', '.join(map(str, folders))}")


def assert_same(model, prompts, limit):
    """Compare private greedy answers with plain ones, except where plain is nearly undecided."""

    def talk(client):
        answers = []
        for ids in prompts:
            conversation = Conversation(client)
            answers.append(list(conversation.generate(ids, best, limit=limit)))
            conversation.close()
        return answers

    answers = speak(model, talk).value
    for ids, answer in zip(prompts, answers, strict=True):
        cache, fresh = Cache(), ids
        for place, token in enumerate(answer):
            scores = next_logits(model, fresh, cache)
            top = scores.topk(2).values
            if float(top[0] - top[1]) > TIE:
                assert int(scores.argmax()) == token, f"prompt {ids} differs at token {place}"
            fresh = [token]


def prompts(found, texts):
    return [[1, *found.tokenizer().encode(text)] for text in texts]


def test_stories_are_those_of_the_plain_model():
    found = checkpoint("lm_stories260k")
    assert_same(found.load(), prompts(found, STORIES[:2]), 16)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("name", "texts"), [("lm_stories260k", STORIES), ("lm_minimind2_small", QUESTIONS)]
)
def test_twenty_long_answers_are_those_of_the_plain_model(name, texts):
    found = checkpoint(name)
    assert_same(found.load(), prompts(found, texts), 64)


def private_perplexity(model, ids):
    """Return the perplexity under the private engine; the order of the scores is the owner's."""
    orders, original = [], Serving.run

    def noting(self, offline, run, stream):
        orders.append(offline.names)
        return original(self, offline, run, stream)

    def talk(client):
        conversation = Conversation(client)
        scores = conversation.score(ids)
        conversation.close()
        return scores

    with mock.patch.object(Serving, "run", noting):
        shown = speak(model, talk).value
    scores = torch.empty_like(shown).scatter_(1, orders[0], shown)[:-1]
    surprise = torch.nn.functional.cross_entropy(scores, torch.tensor(ids[1:]))
    return math.exp(surprise.item())


TALE = "Once upon a time, there was a little girl. She liked to play with her dog in the park."
SPRING = "春天是一年四季中的第一个季节,万物复苏,百花盛开,天气逐渐变暖。人们喜欢在春天出去踏青。"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lm_stories260k", TALE),
        pytest.param("lm_minimind2_small", SPRING, marks=pytest.mark.slow),
    ],
)
def test_perplexity_is_that_of_the_plain_model(name, text):
    found = checkpoint(name)
    model = found.load()
    ids = [1, *found.tokenizer().encode(text)]
    assert private_perplexity(model, ids) == pytest.approx(perplexity(model, ids), rel=1e-3)
