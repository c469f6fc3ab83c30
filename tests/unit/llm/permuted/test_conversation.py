import time

import pytest
import torch

from support.llm import answering, best, plainly, speak, tiny
from tacit.errors import ConfigError, DataError, RangeError
from tacit.llm.permuted import Ahead, Conversation, Precision, open_vault

PROMPT = [1, 5, 7, 9, 3]


class Passing:
    """A link that does what the one it wraps does, but for what a test changes."""

    def __init__(self, inner):
        self._inner = inner
        self.peer = inner.peer

    def send(self, tag, frame, *, phase="online"):
        self._inner.send(tag, frame, phase=phase)

    def recv(self, tag):
        return self._inner.recv(tag)

    def close(self, *, failure=None):
        self._inner.close(failure=failure)


def said(conversation, ids, limit):
    return list(conversation.generate(ids, best, limit=limit))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_second_prompt_goes_on_where_the_first_answer_ended(family):
    model = tiny(family, seed=5)

    def talk(client):
        conversation = Conversation(client)
        first = said(conversation, PROMPT, 4)
        read = tuple(conversation.memory.read)
        second = said(conversation, [*first[len(read) - len(PROMPT) :], 2, 8], 5)
        conversation.close()
        return first, second

    first, second = speak(model, talk).value
    assert first == plainly(model, PROMPT, 4)
    assert second == plainly(model, [*PROMPT, *first, 2, 8], 5)


def test_a_caller_that_stops_leaves_the_conversation_usable():
    model = tiny("llama", seed=6)

    def talk(client):
        conversation = Conversation(client)
        tokens = conversation.generate(PROMPT, best, limit=30)
        first = [next(tokens) for _ in range(3)]
        tokens.close()
        read = tuple(conversation.memory.read)
        second = said(conversation, [4], 4)
        conversation.close()
        return first, read, second

    first, read, second = speak(model, talk).value
    assert read == (*PROMPT, *first)  # the token that was stopped at has been read
    assert second == plainly(model, [*read, 4], 4)


def test_a_conversation_can_be_taken_back():
    model = tiny("llama", seed=7)

    def talk(client):
        conversation = Conversation(client)
        said(conversation, PROMPT, 6)
        conversation.memory.rewind(3)
        answer = said(conversation, [2, 4], 5)
        with pytest.raises(DataError, match="cannot be taken back to 99"):
            conversation.memory.rewind(99)
        conversation.close()
        return answer

    assert speak(model, talk).value == plainly(model, [*PROMPT[:3], 2, 4], 5)


def test_conversations_side_by_side_do_not_mix():
    model = tiny("llama", seed=8)
    prompts = [[1, 2, 3], [9, 8, 7, 6]]

    def talk(client):
        both = [Conversation(client) for _ in prompts]
        streams = [one.generate(ids, best, limit=6) for one, ids in zip(both, prompts, strict=True)]
        pairs = [list(tokens) for tokens in zip(*streams, strict=True)]
        for one in both:
            one.close()
        return [list(answer) for answer in zip(*pairs, strict=True)]

    assert speak(model, talk).value == [plainly(model, ids, 6) for ids in prompts]


def test_forms_may_change_from_block_to_block():
    model = tiny("llama", seed=9)

    def talk(client):
        conversation = Conversation(client)
        tokens = []
        for form in ("resent", "incremental", "resent", "resent", "incremental"):
            client.form = form
            ids = PROMPT if not tokens else tokens[-1:]
            conversation.memory.rewind(len(PROMPT) + len(tokens) - 1 if tokens else 0)
            tokens += said(conversation, ids, 3)
        conversation.close()
        return tokens

    assert speak(model, talk).value == plainly(model, PROMPT, 15)


@pytest.mark.parametrize(
    "ahead", [Ahead(block=1, blocks=1, chunk=2), Ahead(block=3, blocks=4, chunk=5)]
)
def test_the_answer_does_not_depend_on_how_material_is_ordered(ahead):
    model = tiny("llama", seed=10)
    spoken = speak(model, answering(PROMPT, 7), ahead=ahead)
    assert spoken.value == plainly(model, PROMPT, 7)


def test_a_long_context_is_read_in_chunks_and_filled():
    model = tiny("llama", seed=4, layers=1, heads=2, kv_heads=1, context=600)
    draw = torch.Generator().manual_seed(2)
    ids = torch.randint(0, 40, (592,), generator=draw).tolist()
    said = speak(model, answering(ids, 20)).value
    assert said == plainly(model, ids, 20)
    assert len(said) == 9  # the answer ends where the context does


class Late(Passing):
    """A dealer's link that keeps material back until somebody has been told of the wait."""

    def __init__(self, inner, waits):
        super().__init__(inner)
        self._waits = waits

    def send(self, tag, frame, *, phase="online"):
        limit = time.monotonic() + 100
        while tag.startswith("deal") and not self._waits and time.monotonic() < limit:
            time.sleep(0.01)
        super().send(tag, frame, phase=phase)


def test_a_slow_dealer_is_waited_for_and_told_of():
    model, waits = tiny("llama", seed=12), []

    def talk(client):
        conversation = Conversation(client)
        tokens = conversation.generate(PROMPT, best, limit=3, on_wait=waits.append)
        answer = list(tokens)
        conversation.close()
        return answer

    spoken = speak(model, talk, wrap=lambda me, link: Late(link, waits) if me == "dealer" else link)
    assert spoken.value == plainly(model, PROMPT, 3)
    assert waits
    assert min(waits) >= 1


class Dying(Passing):
    def send(self, tag, frame, *, phase="online"):
        if tag.startswith("deal0/3"):
            raise RuntimeError("the dealer is gone")
        super().send(tag, frame, phase=phase)


@pytest.mark.parametrize("form", ["resent", "incremental"])
def test_a_conversation_survives_the_death_of_its_dealer(form):
    model = tiny("llama", seed=13)
    vault, kept, heard = open_vault(model), [], []

    def begin(client):
        conversation = Conversation(client)
        kept.append((conversation.memory, client.masked))
        for token in conversation.generate(PROMPT, best, limit=12):
            heard.append(token)

    with pytest.raises(RuntimeError, match="the dealer is gone"):
        speak(
            model,
            begin,
            vault=vault,
            form=form,
            ahead=Ahead(block=2, blocks=1),  # so that batch 3 is made when tokens have been heard
            wrap=lambda me, link: Dying(link) if me == "dealer" else link,
        )
    memory, masked = kept[0]
    assert 0 < len(heard) < 12

    def resume(client):
        assert client.masked is masked  # the weights did not travel again
        conversation = Conversation(client, memory)
        text = [*PROMPT, *heard]
        conversation.memory.rewind(min(len(conversation.memory.read), len(text) - 1))
        rest = said(conversation, text[len(conversation.memory.read) :], 12 - len(heard))
        conversation.close()
        return rest

    spoken = speak(model, resume, vault=vault, form=form, known=masked)
    assert heard + spoken.value == plainly(model, PROMPT, 12)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([], "at least one token"),
        ([1, 40], "between 0 and 39, got 40"),
        ([1] * 65, "65 tokens, the model's context is 64"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is_sent(ids, message):
    def talk(client):
        conversation = Conversation(client)
        with pytest.raises(DataError, match=message):
            said(conversation, ids, 3)
        sent = client.session.cost().online_rounds
        conversation.close()
        return sent

    assert speak(tiny("llama"), talk).value == 0


def test_a_model_whose_values_leave_the_ring_is_refused_by_name():
    model = tiny("llama")
    model.weights["layers.0.q.weight"].mul_(3e4)
    with pytest.raises(RangeError, match=r"in 0\.project\.q"):
        speak(model, answering(PROMPT, 2), precision=Precision())


def test_ordering_nothing_ahead_is_refused():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        Ahead(block=0)
