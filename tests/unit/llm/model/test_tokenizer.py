"""Tokenizers and text as it comes, against a merging that is written another way."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, processors

from tacit.errors import DataError
from tacit.llm import Spelling
from tacit.llm.model.tokenizer import from_folder, from_settings

BYTES = [f"<0x{i:02X}>" for i in range(256)]
WORDS = [" t", "he", " a", "nd", " the", "ed", " and", " ", "t", "h", "e", "a", "n", "d", "é"]
PIECES = [("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0)]
PIECES += [(name, 0.0) for name in BYTES]
PIECES += [(word, -float(i)) for i, word in enumerate(WORDS)]


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "tok512.json").write_text(json.dumps(PIECES))
    (folder / "config.json").write_text('{"bos_token_id": 1, "eos_token_id": 2}')
    return from_folder(folder)


def merge(text):
    """Join the pair whose piece has the highest score, leftmost first, until there is none."""
    ids = {piece: i for i, (piece, _) in enumerate(PIECES)}
    parts = list(" " + text) if text else []
    while True:
        pairs = [
            (PIECES[ids[a + b]][1], -i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ids
        ]
        if not pairs:
            break
        at = -max(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    out = []
    for part in parts:
        out += [ids[part]] if part in ids else [3 + byte for byte in part.encode()]
    return out


@given(text=st.text(alphabet="thean dé猫", max_size=40))
def test_pieces_are_joined_by_their_scores(stories, text):
    assert stories.encode(text) == merge(text)


@given(text=st.text(max_size=40))
def test_any_text_survives_encoding(stories, text):
    assert stories.decode(stories.encode(text)) == text.replace("▁", " ")


@given(text=st.text(alphabet="the nd猫é😀", max_size=30))
def test_text_that_comes_token_by_token_is_the_whole_text(stories, text):
    spelling = Spelling(stories)
    shown = [spelling.push(token) for token in stories.encode(text)]
    assert not any("\ufffd" in piece for piece in shown)
    assert "".join(shown) + spelling.finish() == text


def test_half_a_character_is_held_back_and_shown_broken_at_the_end(stories):
    spelling = Spelling(stories)
    first, second = (3 + byte for byte in "猫".encode()[:2])
    assert [spelling.push(first), spelling.push(second)] == ["", ""]
    assert "\ufffd" in spelling.finish()


def test_marks_of_start_and_stop_come_from_the_configuration(stories):
    assert stories.starts == (1,)
    assert stories.stops == {2}
    assert stories.size == len(PIECES)


def test_a_tokenizer_file_says_itself_what_stands_before_a_text(tmp_path):
    engine = Engine(models.BPE({"a": 0, "<s>": 1}, []))
    engine.add_special_tokens(["<s>"])
    engine.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    engine.save(str(tmp_path / "tokenizer.json"))
    assert from_folder(tmp_path).starts == (1,)
    (tmp_path / "tokenizer_config.json").write_text('{"add_bos_token": false}')
    assert from_folder(tmp_path).starts == ()


def gguf_settings(**changes):
    letters = ["<|end|>", "Ġ", "h", "i", "hi", "Ġhi", "1", "2", "12"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": letters,
        "tokenizer.ggml.token_type": [3] + [1] * 8,
        "tokenizer.ggml.merges": ["h i", "Ġ hi", "1 2"],
        "tokenizer.ggml.eos_token_id": 0,
        **changes,
    }


def test_a_gguf_vocabulary_becomes_a_tokenizer():
    found = from_settings(gguf_settings())
    assert found.encode("hi hi") == [4, 5]
    assert found.encode("hi<|end|>") == [4, 0]
    assert found.decode([4, 5, 0]) == "hi hi"
    assert found.stops == {0}
    assert found.special == {"eos_token": "<|end|>"}


def test_how_words_are_cut_is_the_models_own():
    assert from_settings(gguf_settings()).encode("12") == [6, 7]
    free = gguf_settings(**{"tokenizer.ggml.pre": "gpt-2"})
    assert from_settings(free).encode("12") == [8]


def test_a_sentencepiece_vocabulary_in_gguf_becomes_a_tokenizer(stories):
    pieces = [(piece.strip("\n").replace(" ", "▁"), score) for piece, score in PIECES]
    found = from_settings(
        {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": [piece for piece, _ in pieces],
            "tokenizer.ggml.scores": [score for _, score in pieces],
            "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(WORDS),
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
        }
    )
    assert found.encode("the 猫 and") == stories.encode("the 猫 and")
    assert found.starts == (1,)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer.ggml.model": "t5"}, "model of gpt2 or llama, got 't5'"),
        ({"tokenizer.ggml.pre": "strange"}, "got 'strange'"),
        ({"tokenizer.ggml.tokens": None}, "no tokenizer"),
        ({"tokenizer.ggml.merges": ["h x"]}, "merges do not fit"),
        ({"tokenizer.ggml.eos_token_id": 99}, "99 of 9 tokens"),
    ],
)
def test_a_vocabulary_that_is_not_understood_is_refused(changes, words):
    with pytest.raises(DataError, match=words):
        from_settings(gguf_settings(**changes))


def test_a_broken_tokenizer_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"wanted a tokenizer\.json, found none"):
        from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="not a tokenizer"):
        from_folder(tmp_path)
