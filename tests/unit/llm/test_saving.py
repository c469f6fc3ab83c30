"""A model that was tuned here comes back from disk as it was."""

import json

import pytest
import torch

from private_llm import FAMILIES, tiny
from tacit.errors import DataError
from tacit.llm import logits, open_checkpoint
from tacit.llm.model.module import CausalModule, language_model, tiny_model
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


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "chatglm"])
def test_every_family_comes_back(tmp_path, tokenizer, family):
    model = tiny(family, vocab=tokenizer.size)
    save_model(tmp_path, language_model(CausalModule(model)), tokenizer)
    opened = open_checkpoint(tmp_path)
    assert opened.architecture == model.architecture
    ids = [1, 2, 3]
    assert torch.equal(logits(opened.load(), ids), logits(model, ids))
    again = opened.tokenizer()
    assert (again.starts, again.stops) == (tokenizer.starts, tokenizer.stops)
    assert again.encode("头痛1") == tokenizer.encode("头痛1")


def test_an_architecture_that_makes_no_sense_is_refused(tmp_path, tokenizer):
    save_model(tmp_path, tiny_model(tokenizer.size), tokenizer)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for wrong in ({"heads": 3}, {"unknown": 1}):
        path.write_text(json.dumps({**config, "architecture": {**config["architecture"], **wrong}}))
        with pytest.raises(DataError, match="architecture"):
            open_checkpoint(tmp_path)
    path.write_text(json.dumps({"model_type": "tacit"}))
    with pytest.raises(DataError, match="needs a table architecture"):
        open_checkpoint(tmp_path)
