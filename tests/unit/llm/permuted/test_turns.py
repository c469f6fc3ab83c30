import pytest

from support.llm import answering, best, speak, tiny
from tacit.errors import FrameError
from tacit.llm.permuted import Batch, Conversation, open_vault
from tacit.llm.permuted.messages import NAME, RUN, STEP
from tacit.llm.permuted.owner import Turns

PROMPT = Batch(number=0, past=0, rows=3, prompt=0, masked_kv=0, form=None)
BLOCK = Batch(number=1, past=3, rows=2, prompt=0, masked_kv=3, form="resent")


def after(*commands):
    turns = Turns("user")
    for op, batch, run in commands:
        turns.admit(op, batch.number, run)
        if op != NAME:
            turns.take(op, batch, run)
    return turns


def test_a_prompt_and_its_steps_are_admitted_in_turn():
    after((RUN, PROMPT, 0), (STEP, BLOCK, 0), (STEP, BLOCK, 1), (NAME, BLOCK, 1))


@pytest.mark.parametrize(
    ("before", "op", "batch", "run"),
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
def test_what_was_served_or_named_is_not_again(before, op, batch, run):
    turns = after(*before)
    with pytest.raises(FrameError, match="out of turn"):
        turns.admit(op, batch.number, run)


@pytest.mark.parametrize(("op", "batch", "run"), [(RUN, BLOCK, 0), (STEP, BLOCK, 2)])
def test_a_batch_has_only_the_runs_that_were_made_for_it(op, batch, run):
    with pytest.raises(FrameError, match="no run"):
        Turns("user").take(op, batch, run)


def test_a_batch_is_made_once_even_in_another_session():
    model = tiny("llama")
    vault = open_vault(model)
    kept = []

    def begin(client):
        conversation = Conversation(client)
        list(conversation.generate([1, 2], best, limit=2))
        kept.append(conversation.memory)
        conversation.close()

    speak(model, begin, vault=vault)
    kept[0].batches = 0  # a user that forgets what it ordered

    def again(client):
        conversation = Conversation(client, kept[0])
        list(conversation.generate([1, 2], best, limit=2))

    with pytest.raises(FrameError, match="made batch 0 twice"):
        speak(model, again, vault=vault)
    assert len(speak(model, answering([1, 2], 2), vault=vault).value) == 2
