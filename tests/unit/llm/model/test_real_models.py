"""The two small real models, where they are."""

from pathlib import Path

import pytest
import torch

import tacit
from tacit.data import search_path
from tacit.llm import Answer, Ask, Message, PlainBackend, logits, open_checkpoint, perplexity

pytestmark = pytest.mark.data


def checkpoint(name):
    folders = search_path(None, Path(tacit.__file__).parent, Path("nowhere"))
    for folder in folders:
        if (folder / name).is_dir():
            return open_checkpoint(folder / name)
    return pytest.skip(f"no {name} in any of {', '.join(map(str, folders))}")


def answer(found, text, limit):
    tokenizer = found.tokenizer()
    ask = Ask(messages=(Message(role="user", content=text),), limit=limit)
    return "".join(Answer(PlainBackend(found.load()), tokenizer, ask))


def test_the_small_story_teller_tells_a_story():
    story = answer(checkpoint("lm_stories260k"), "Once upon a time", 24)
    assert story.startswith(", there was a little girl named Lily. She loved to play")


def test_the_story_teller_finds_stories_likely_and_noise_not():
    found = checkpoint("lm_stories260k")
    model, tokenizer = found.load(), found.tokenizer()
    ids = tokenizer.encode("Once upon a time, there was a little girl. She liked to play.")
    noise = torch.randint(0, 512, (len(ids),), generator=torch.Generator().manual_seed(0)).tolist()
    assert perplexity(model, [1, *ids]) < 5
    assert perplexity(model, [1, *noise]) > 500


def test_the_small_chinese_model_answers_in_chinese():
    text = answer(checkpoint("lm_minimind2_small"), "你好", 16)
    assert text.startswith("你好")


def test_scores_of_a_real_model_are_finite_over_a_long_text():
    found = checkpoint("lm_stories260k")
    ids = found.tokenizer().encode("The dog ran to the park. " * 40)[:512]
    assert bool(torch.isfinite(logits(found.load(), ids)).all())
