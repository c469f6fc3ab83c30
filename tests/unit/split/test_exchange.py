"""Packed bytes arrive as they were sent; another size than was agreed on is refused."""

import pytest
import torch

from support.split import make_task, run_split
from tacit.errors import FrameError
from tacit.party import Meeting, run_threads
from tacit.split.exchange import name_part, receive_bytes, send_bytes


def send_one(data, **wanted):
    programs = {
        "clinic": lambda session: send_bytes(session, "lab", "forward/0.0", data),
        "lab": lambda session: receive_bytes(session, "clinic", "forward/0.0", **wanted),
    }
    meeting = Meeting(parties=("clinic", "lab"), job_digest=b"s" * 32)
    return run_threads(programs, meeting)["lab"]


@pytest.mark.parametrize("size", [12, None])
def test_what_arrives_is_what_was_sent_even_from_every_other_byte(size):
    data = torch.arange(24, dtype=torch.uint8)[::2]
    assert torch.equal(send_one(data, size=size, most=20), data)


def test_no_bytes_are_bytes_too():
    empty = torch.empty(0, dtype=torch.uint8)
    assert torch.equal(send_one(empty, size=None, most=20), empty)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"size": 11, "most": 20}, r"wanted u8\(11,\), got u8\(12,\)"),
        ({"size": 13, "most": 20}, r"wanted u8\(13,\), got u8\(12,\)"),
        ({"size": None, "most": 11}, r"wanted u8 of up to 11, got u8\(12,\)"),
    ],
)
def test_another_size_is_refused(wanted, words):
    with pytest.raises(FrameError, match=words):
        send_one(torch.zeros(12, dtype=torch.uint8), **wanted)


def test_names_come_again_after_a_while_and_a_long_training_does_not_mind():
    assert name_part(3, 1) != name_part(4, 1) != name_part(4, 0)
    assert len({name_part(step, 0) for step in range(1000)}) < 1000
    found = run_split(make_task(epochs=30, in_flight=3))
    assert len(found["lab"]["epochs"]) == 30
