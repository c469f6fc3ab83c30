import random

import numpy as np
import pytest
import torch

pytest.importorskip("tenseal", reason="tacit-ml[he] is not installed")

from private_llm import answering, plainly, speak, tiny
from tacit.errors import DataError, FrameError
from tacit.llm.permuted.homomorphic import Names, Picker, pieces

VOCAB = 40
ORDER = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(1)).tolist()


@pytest.mark.parametrize("vocab", [1, 40, 8192, 8193, 20_000])
def test_the_user_reads_the_entry_at_its_place(vocab):
    order = torch.randperm(vocab, generator=torch.Generator().manual_seed(1)).tolist()
    order[order.index(0)], order[-1] = order[-1], 0  # the last piece may hold nothing but a 0
    picker = Picker(vocab)
    names = Names("user", vocab, picker.public())
    for place in {0, vocab // 2, vocab - 1}:
        asked = picker.ask(place)
        assert len(asked) == pieces(vocab)
        assert picker.read(names.answer(order, asked)) == order[place]


def test_an_answer_has_one_entry_and_is_random_everywhere_else():
    """Coefficients of the product hold other entries too: they would name other places."""
    picker = Picker(VOCAB)
    names = Names("user", VOCAB, picker.public())
    asked, every = picker.ask(3), np.arange(8192)
    found = [
        picker._own.decrypt(picker._keys.load(answer, 2, is_seeded=False), every) % 64
        for answer in (names.answer(ORDER, asked), names.answer(ORDER, asked))
    ]
    assert found[0][-1] == found[1][-1] == ORDER[3] + 1
    same = int((found[0][:-1] == found[1][:-1]).sum())
    assert 40 < same < 230  # 128 of 8191 by chance, 11 deviations being 124
    assert np.abs(np.bincount(found[0], minlength=64) - 128).max() < 80


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (lambda picker: [b"nonsense"], "'user'.*no.*wanted 196672 bytes"),
        (lambda picker: [], "0 pieces, wanted 1"),
        (lambda picker: picker.ask(0) * 2, "2 pieces, wanted 1"),
        (lambda picker: [b"\xff" * len(picker.ask(0)[0])], "above its modulus"),
        (lambda picker: [bytes(len(picker.ask(0)[0]))], None),  # zeros beside a seed hide nothing
    ],
)
def test_what_is_no_question_is_refused_by_the_name_of_its_sender(asked, told):
    picker = Picker(VOCAB)
    names = Names("user", VOCAB, picker.public())
    if told is None:
        assert len(names.answer(ORDER, asked(picker))) == 131_072
        return
    with pytest.raises(FrameError, match=told):
        names.answer(ORDER, asked(picker))


def test_keys_of_other_parameters_are_refused_by_the_name_of_their_sender():
    public = Picker(VOCAB).public()
    for wrong in (b"", public[:-1], bytes(len(public)), b"\xff" * len(public)):
        with pytest.raises(FrameError, match=r"'user'.*no BFV key for 40 tokens"):
            Names("user", VOCAB, wrong)


def changed(data, chance):
    """Change bits, put others in, cut, or swap stretches."""
    found, size = bytearray(data), len(data)
    way = chance.randrange(4)
    if way == 0:
        found[chance.randrange(-min(size, 400), min(size, 400))] ^= 1 << chance.randrange(8)
    elif way == 1:
        at = chance.randrange(size - 8)
        found[at : at + 8] = b"\xff" * 8
    elif way == 2:
        return bytes(found[: chance.randrange(size)])
    else:
        at, to = chance.randrange(size - 64), chance.randrange(size - 64)
        found[at : at + 64] = found[to : to + 64]
    return bytes(found)


def fuzz(count):
    """Count what was refused of keys, questions and answers with changed bytes."""
    chance = random.Random(5)  # noqa: S311 - what is changed is no secret
    picker = Picker(VOCAB)
    names = Names("user", VOCAB, picker.public())
    asked = picker.ask(3)[0]
    answer = names.answer(ORDER, [asked])
    reads = (
        (asked, lambda data: names.answer(ORDER, [data])),
        (answer, picker.read),
        (picker.public(), lambda data: Names("user", VOCAB, data)),
    )
    refused = 0
    for number in range(count):
        data, read = reads[number % len(reads)]
        try:
            read(changed(data, chance))
        except (DataError, FrameError):
            refused += 1
    return refused


def test_changed_messages_are_refused_or_taken_and_end_no_process():
    assert 500 < fuzz(1500) < 1500


def test_a_chat_that_names_its_tokens_by_bfv_says_the_same():
    model = tiny("llama", seed=4)
    spoken = speak(model, answering([1, 5, 7], 3), naming="bfv")
    assert spoken.value == plainly(model, [1, 5, 7], 3)
    tags = [tag for tag, _ in spoken.received["user"]]
    assert not any(tag.startswith("id0") for tag in tags)
    assert sum(tag.startswith("he0/answer") for tag in tags) == 3
