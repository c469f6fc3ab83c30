import pytest

from private_llm import answering, best, speak, tiny
from tacit.errors import FrameError
from tacit.llm.permuted import Conversation, Order, open_vault
from tacit.llm.permuted.seats import NAME, RUN, STEP
from tacit.llm.permuted.turns import Turns

PROMPT = Order(number=0, past=0, rows=3, prompt=0, posted=0, form=None)
BLOCK = Order(number=1, past=3, rows=2, prompt=0, posted=3, form="half")


def after(*commands):
    turns = Turns("user")
    for op, order, run in commands:
        turns.admit(op, order.number, run)
        if op != NAME:
            turns.take(op, order, run)
    return turns


def test_a_prompt_and_its_steps_are_admitted_in_turn():
    after((RUN, PROMPT, 0), (STEP, BLOCK, 0), (STEP, BLOCK, 1), (NAME, BLOCK, 1))


@pytest.mark.parametrize(
    ("before", "op", "order", "run"),
    [
        ([], STEP, BLOCK, 0),
        ([], NAME, PROMPT, 0),
        ([(RUN, PROMPT, 0)], RUN, PROMPT, 0),
        ([(RUN, PROMPT, 0), (STEP, BLOCK, 0)], STEP, BLOCK, 0),
        ([(RUN, PROMPT, 0), (NAME, PROMPT, 0)], NAME, PROMPT, 0),
        ([(RUN, PROMPT, 0), (NAME, PROMPT, 0)], STEP, BLOCK, 0),
        ([(RUN, PROMPT, 0)], 9, PROMPT, 0),
    ],
)
def test_what_was_served_or_named_is_not_again(before, op, order, run):
    turns = after(*before)
    with pytest.raises(FrameError, match="out of turn"):
        turns.admit(op, order.number, run)


@pytest.mark.parametrize(("op", "order", "run"), [(RUN, BLOCK, 0), (STEP, BLOCK, 2)])
def test_an_order_has_only_the_runs_that_were_made_for_it(op, order, run):
    with pytest.raises(FrameError, match="no run"):
        Turns("user").take(op, order, run)


def test_an_order_is_made_once_even_in_another_session():
    model = tiny("llama")
    vault = open_vault(model)
    kept = []

    def begin(client):
        conversation = Conversation(client)
        list(conversation.generate([1, 2], best, limit=2))
        kept.append(conversation.memory)
        conversation.close()

    speak(model, begin, vault=vault)
    kept[0].orders = 0  # a user that forgets what it ordered

    def again(client):
        conversation = Conversation(client, kept[0])
        list(conversation.generate([1, 2], best, limit=2))

    with pytest.raises(FrameError, match="made order 0 twice"):
        speak(model, again, vault=vault)
    assert len(speak(model, answering([1, 2], 2), vault=vault).value) == 2
