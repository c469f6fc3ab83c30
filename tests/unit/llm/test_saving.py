"""A model that was tuned here comes back from disk as it was."""

import json

import pytest
import torch

from support.llm import FAMILIES, tiny
from tacit.errors import DataError
from tacit.llm import logits, open_checkpoint
from tacit.llm.model.architecture import LanguageModel
from tacit.llm.model.module import CausalModule, language_model
from tacit.llm.model.saving import save_model, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(["头痛要休息，多喝水。" * 3, "1234567890"], size=300)


def test_a_new_tokenizer_spells_every_script_and_digits_one_by_one(tokenizer):
    for text in ("头痛123", "пациент ４５", "😀"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert all(len(tokenizer.encode(digit)) == 1 for digit in "0123456789")
    assert len(tokenizer.encode("2019")) == 4
    assert tokenizer.starts
    assert tokenizer.stops


KINDS = {
    "llama": "llama",
    "llama3": "llama",
    "gpt2": "gpt2",
    "qwen3": "qwen3",
    "gemma3": "tacit",  # its scale of scores is the root of no whole number
    "glm4": "tacit",  # a bias on every matrix: theirs has three
}


def saved(folder, model, tokenizer):
    """Write a model, check that it comes back, and return its config.json."""
    save_model(folder, language_model(CausalModule(model)), tokenizer)
    opened = open_checkpoint(folder)
    assert opened.architecture == model.architecture
    ids = [1, 2, 3]
    torch.testing.assert_close(logits(opened.load(), ids), logits(model, ids), rtol=0, atol=1e-5)
    again = opened.tokenizer()
    assert (again.starts, again.stops) == (tokenizer.starts, tokenizer.stops)
    assert again.encode("头痛1") == tokenizer.encode("头痛1")
    return json.loads((folder / "config.json").read_text())


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", KINDS)
def test_every_family_comes_back_under_the_name_that_others_give_it(
    tmp_path, tokenizer, family, tied
):
    assert {*KINDS, "chatglm"} == set(FAMILIES)
    model = tiny(family, vocab=tokenizer.size, tied_output=tied)
    if tied:
        weights = {**model.weights, "output.weight": model.weights["embed"]}
        model = LanguageModel(architecture=model.architecture, weights=weights)
    assert saved(tmp_path, model, tokenizer)["model_type"] == KINDS[family]


def test_gemma_comes_back_under_its_name(tmp_path, tokenizer):
    model = tiny("gemma3", vocab=tokenizer.size, score_scale=168**-0.5)
    assert saved(tmp_path, model, tokenizer)["query_pre_attn_scalar"] == 168


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "qwen2"),
        ({"rotary_dim": 2}, "glm"),
        ({"rotary_dim": 2, "has_post_norm": True}, "glm4"),
        ({"window": 4, "global_every": 2}, "tacit"),  # local layers are Gemma's alone
    ],
)
def test_biases_that_others_leave_out_are_left_out_where_they_are_zero(
    tmp_path, tokenizer, changes, kind
):
    model = tiny("llama", vocab=tokenizer.size, has_bias=True, **changes)
    for name, weight in model.weights.items():
        if name.endswith(".bias") and name.split(".")[2] not in "qkv":
            weight.zero_()
    assert saved(tmp_path, model, tokenizer)["model_type"] == kind
    if kind == "qwen2":
        model.weights["layers.1.o.bias"][0] = 1.0
        config = saved(tmp_path, model, tokenizer)
        assert (config["model_type"], config["mlp_bias"]) == ("llama", True)


def test_an_architecture_that_makes_no_sense_is_refused(tmp_path, tokenizer):
    save_model(tmp_path, tiny("chatglm", vocab=tokenizer.size), tokenizer)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for wrong in ({"heads": 3}, {"unknown": 1}):
        path.write_text(json.dumps({**config, "architecture": {**config["architecture"], **wrong}}))
        with pytest.raises(DataError, match="architecture"):
            open_checkpoint(tmp_path)
    path.write_text(json.dumps({"model_type": "tacit"}))
    with pytest.raises(DataError, match="needs a table architecture"):
        open_checkpoint(tmp_path)
