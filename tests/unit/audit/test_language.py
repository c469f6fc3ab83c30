"""The audit of a language model: which texts are attacked, and how canaries are numbered."""

import pytest

from support.llm import write_model
from tacit.audit.language import choose_targets, form_of
from tacit.audit.spec import Canaries, Excerpts
from tacit.errors import ConfigError, DataError
from tacit.llm import open_checkpoint


def test_targets_are_distinct_long_enough_and_of_one_length():
    texts = Excerpts(prefix=3, tokens=4, count=9)
    corpus = [[1, 2, 3, 4, 5, 6, 7], [1, 2], [1, 2, 3, 4, 5, 6, 7, 8], [9] * 7]
    assert choose_targets(corpus, texts, context=32).tolist() == [[1, 2, 3, 4, 5, 6, 7], [9] * 7]
    with pytest.raises(DataError, match=r"at least 7 tokens.*the longest of 1 has 2"):
        choose_targets([[1, 2]], texts, context=32)
    with pytest.raises(ConfigError, match="make 7, more than the 5"):
        choose_targets(corpus, texts, context=5)


def test_a_canary_is_numbered_by_its_characters(tmp_path):
    tokenizer = open_checkpoint(write_model(tmp_path / "tiny")).tokenizer()
    form, numbers = form_of(Canaries(sentence="x", planted=("ab", "ca"), alphabet="abc"), tokenizer)
    assert numbers == [1, 6]
    assert form.text(6) == tuple(tokenizer.encode("xca"))


class Merging:
    """A tokenizer that has a token for a space and a letter, and for two letters."""

    def encode(self, text):
        for number, pair in enumerate((" a", "bb")):
            text = text.replace(pair, chr(1000 + number))
        return [ord(one) for one in text]


@pytest.mark.parametrize(("sentence", "text"), [("x ", "'a' there"), ("x", "'bb' a character")])
def test_canaries_that_are_spelled_otherwise_are_refused(sentence, text):
    canaries = Canaries(sentence=sentence, planted=("bb",), alphabet="ab")
    with pytest.raises(ConfigError, match=text):
        form_of(canaries, Merging())
