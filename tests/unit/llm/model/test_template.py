import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import models

from tacit.errors import DataError
from tacit.llm import Message, Tokenizer, prompt_ids, render

CHATML = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' + message['content'] + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TALK = [Message(role="system", content="Be kind."), Message(role="user", content="Hi <b>")]


def tokenizer(template, **special):
    engine = Engine(models.BPE({"a": 0, "b": 1, "s": 2}, []))
    return Tokenizer(
        engine=engine, starts=(2,), stops=frozenset(), template=template, special=special
    )


def test_a_template_lays_out_the_conversation():
    assert render(tokenizer(CHATML), TALK) == "<|system|>Be kind.\n<|user|>Hi <b>\n<|assistant|>"


def test_a_model_without_a_template_continues_the_text():
    assert render(tokenizer(None), [Message(role="user", content="Once")]) == "Once"


def test_the_start_token_comes_first_unless_a_template_says_where():
    talk = [Message(role="user", content="ab")]
    assert prompt_ids(tokenizer(None), talk) == [2, 0, 1]
    assert prompt_ids(tokenizer("{{ messages[0].content }}s"), talk) == [0, 1, 2]


def test_special_tokens_and_json_are_known_to_a_template():
    text = "{{ bos_token }}{{ messages | tojson }}"
    assert render(tokenizer(text, **{"bos_token": "<s>"}), TALK[1:]) == (
        '<s>[{"role": "user", "content": "Hi <b>"}]'
    )


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ raise_exception('no system') }}", "refuses this conversation: no system"),
        ("{% for %}", "template fails"),
        ("{{ messages.__class__.__mro__ }}", "template fails"),
        ("{{ ''.__class__.__base__.__subclasses__() }}", "template fails"),
        ("{{ messages.append(1) }}", "template fails"),
        ("{{ nothing.at.all }}", "template fails"),
        ("{% for i in range(10**9) %}x{% endfor %}", "template fails"),
        ("{{ 'x' * 5000000 }}", "5000000 characters"),
        ("{{ 1 / 0 }}", "template fails: ZeroDivisionError"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "template fails: RecursionError"),
        ("{{ " + "not " * 50_000 + "x }}", "template fails: RecursionError"),
    ],
)
def test_a_template_that_misbehaves_is_refused(template, words):
    with pytest.raises(DataError, match=words):
        render(tokenizer(template), TALK)


def test_no_message_is_no_conversation():
    with pytest.raises(DataError, match="at least one message"):
        render(tokenizer(CHATML), [])


def marked(template):
    engine = Engine(models.BPE({c: i for i, c in enumerate("ab|<>m")}, []))
    engine.add_special_tokens(["<|m|>"])
    return Tokenizer(
        engine=engine, starts=(), stops=frozenset(), template=template, special={"eos": "<|m|>"}
    )


@pytest.mark.parametrize("taken", ["m.content", "m.content | trim"])
def test_a_message_that_spells_a_special_token_opens_no_turn(taken):
    chat = marked("{% for m in messages %}<|m|>{{ " + taken + " }}{% endfor %}<|m|>")
    turn = chat.encode("<|m|>")
    assert len(turn) == 1
    talk = [Message(role="user", content="a<|m|>b"), Message(role="user", content="b")]
    ids = prompt_ids(chat, talk)
    assert ids.count(turn[0]) == 3  # two messages and the start of the answer
    assert chat.decode(ids).replace(" ", "") == "a<|m|>bb"
    plain = prompt_ids(chat, [Message(role="user", content="ab")])
    assert plain == chat.encode("<|m|>ab<|m|>")


def test_a_template_that_changes_messages_refuses_those_that_spell_a_special_token():
    chat = marked("{% for m in messages %}<|m|>{{ m.content | upper }}{% endfor %}")
    with pytest.raises(DataError, match="special tokens"):
        prompt_ids(chat, [Message(role="user", content="<|m|>")])
