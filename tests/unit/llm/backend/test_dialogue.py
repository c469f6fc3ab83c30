from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models

from support.llm import LLAMA, make_model
from tacit.errors import ConfigError, DataError
from tacit.llm import Answer, Ask, Message, PlainBackend, Sampling, Spent, Tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz "
STOP = len(LETTERS)


def tokenizer():
    engine = Engine(models.BPE({letter: i for i, letter in enumerate([*LETTERS, "."])}, []))
    engine.decoder = decoders.Fuse()
    return Tokenizer(engine=engine, starts=(), stops=frozenset({STOP}), template=None, special={})


class Script:
    """A backend that says what it is told, and remembers what it was asked."""

    architecture = LLAMA

    def __init__(self, text, ends=True):
        self._ids = [LETTERS.index(letter) for letter in text] + [STOP] * ends
        self.is_closed = False

    def speak(self, prompt, *, sampling, limit, between) -> Generator[int, None, None]:
        self.prompt = list(prompt)
        try:
            yield from self._ids[:limit]
        finally:
            self.is_closed = True

    def take_spent(self):
        return Spent(payload_bytes=7, round_trips=2, leaks=())


def reply(backend, text="hi", **changes):
    ask = Ask(messages=(Message(role="user", content=text),), **changes)
    return Answer(backend, tokenizer(), ask)


def test_an_answer_comes_as_text_and_ends_at_the_stop_token():
    answer = reply(Script("hello there"))
    assert "".join(answer) == "hello there"
    assert answer.receipt.ending == "stop"
    assert answer.receipt.tokens == len("hello there") + 1
    assert answer.receipt.prompt_tokens == 2
    assert answer.receipt.prompt_spent.payload_bytes == 7
    assert answer.receipt.spent.payload_bytes == 7


def test_an_answer_that_is_cut_says_so():
    answer = reply(Script("hello there"), limit=4)
    assert "".join(answer) == "hell"
    assert answer.receipt.ending == "length"
    assert answer.receipt.tokens == 4


def test_a_stop_text_ends_the_answer_and_is_not_shown():
    backend = Script("one two three")
    answer = reply(backend, stops=("two",))
    pieces = list(answer)
    assert "".join(pieces) == "one "
    assert answer.receipt.ending == "stop"
    assert backend.is_closed


@given(
    text=st.text(alphabet="ab ", max_size=30),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=3), max_size=2),
)
def test_what_is_shown_is_all_before_the_first_stop_text(text, stops):
    # Letters come one by one, so the stop text that is complete first counts.
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    first_end = min(ends, default=(len(text), len(text)))[0]
    wanted = text[: min((begin for end, begin in ends if end == first_end), default=len(text))]
    shown = "".join(reply(Script(text), stops=tuple(stops)))
    assert shown == wanted


def test_a_listener_who_leaves_closes_the_backend():
    backend = Script("hello there")
    pieces = iter(reply(backend))
    next(pieces)
    pieces.close()
    assert backend.is_closed


def test_a_conversation_beyond_the_context_is_refused():
    with pytest.raises(DataError, match="32 tokens, and the model's context is 32"):
        reply(Script("x"), "a" * 32)


def test_asking_for_nothing_is_refused():
    with pytest.raises(ConfigError, match="at least 1 token, got 0"):
        reply(Script("x"), limit=0)
    with pytest.raises(ConfigError, match="stop text must not be empty"):
        reply(Script("x"), stops=("",))


def take(backend, prompt, limit, **sampling):
    return list(backend.speak(prompt, sampling=Sampling(**sampling), limit=limit))


def test_a_plain_backend_remembers_what_it_has_read_and_says_the_same():
    model = make_model(LLAMA)
    backend = PlainBackend(model)
    first = take(backend, [1, 2, 3], 4)
    longer = [1, 2, 3, *first, 9]
    assert take(backend, longer, 4) == take(PlainBackend(model), longer, 4)
    assert take(backend, [5, 6], 4) == take(PlainBackend(model), [5, 6], 4)
    assert take(backend, [5, 6], 4) == take(PlainBackend(model), [5, 6], 4)


def test_a_plain_backend_says_that_everything_was_seen():
    backend = PlainBackend(make_model(LLAMA))
    take(backend, [1], 3)
    spent = backend.take_spent()
    assert spent.payload_bytes == 0
    assert [(leak.what, leak.elements) for leak in spent.leaks] == [("the whole conversation", 3)]
    assert backend.take_spent().leaks[0].elements == 0


def test_a_penalty_keeps_a_plain_backend_from_repeating_itself():
    model = make_model(LLAMA)
    dull = take(PlainBackend(model), [1, 2], 20)
    lively = take(PlainBackend(model), [1, 2], 20, repetition_penalty=50.0)
    assert len(set(lively)) > len(set(dull))
