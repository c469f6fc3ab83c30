"""Passes of one row by kernels give what they give without, with the kernels in plain torch."""

import pytest

from support.cuda import emulated
from support.llm import BRIEF, NEWER, answering, plainly, speak, tiny
from tacit.llm.permuted import Precision, cuda_asking, cuda_serving

PROMPT = [3, 7, 11, 5]


def walked(monkeypatch):
    """Count the layers that were walked by kernels."""
    seen = []
    for module in (cuda_asking, cuda_serving):
        original = module.run_layer

        def counting(*arguments, original=original, name=module.__name__):
            seen.append(name)
            return original(*arguments)

        monkeypatch.setattr(module, "run_layer", counting)
    return seen


@pytest.mark.parametrize("form", ["incremental", "resent"])
@pytest.mark.parametrize("precision", [BRIEF, Precision()], ids=["brief", "full"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "chatglm"])
def test_a_chat_by_kernels_gives_the_scores_of_one_without(family, precision, form, monkeypatch):
    model, found = tiny(family, seed=3), ([], [])
    speak(model, answering(PROMPT, 5, found[0]), precision=precision, form=form)
    seen = walked(monkeypatch)
    with emulated():
        speak(model, answering(PROMPT, 5, found[1]), precision=precision, form=form)
    assert len(seen) == 2 * 2 * 4  # both parties, two layers, four steps
    most = 0.2 if precision is BRIEF else 0.01
    for here, there in zip(*found, strict=True):
        assert float((here.sort().values - there.sort().values).abs().max()) < most


@pytest.mark.parametrize("family", NEWER)
def test_newer_models_go_by_kernels_too(family):
    model = tiny(family, seed=3)
    with emulated():
        said = speak(model, answering(PROMPT, 6), form="incremental")
    assert said.value == plainly(model, PROMPT, 6)


def test_a_long_chat_by_kernels_is_the_plain_one():
    model = tiny("llama", seed=19, context=256)  # its best two are never closer than 0.05
    ids = [1 + i % 30 for i in range(40)]
    with emulated():
        said = speak(model, answering(ids, 12), form="incremental")
    assert said.value == plainly(model, ids, 12)
