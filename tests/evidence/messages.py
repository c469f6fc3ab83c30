"""One message of a session of a sealed chat is changed, and what comes of it."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from evidence.experiment import Tried, coins
from fuzz.foreign import Choices, change_bytes
from support.llm import MEETING, among_three, plainly, say, tiny
from support.observer import Tap
from tacit.errors import TacitError
from tacit.llm.sealed import SealedMemory
from tacit.transport import Frame, Patience
from tacit.transport.frame import DTYPE_BYTES

MODEL = tiny("llama", seed=2, layers=1)
PROMPT, ANSWER = [1, 5, 7], 3
# A message that never comes must be noticed; how soon is another matter.
SOON = replace(MEETING, patience=Patience(connect_s=20, silence_s=20, heartbeat_s=0.2, stall_s=6.0))

Change = Callable[[random.Random, str, Frame], list[tuple[str, Frame]]]


def _retyped(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    dtype = rng.choice([one for one in DTYPE_BYTES if one != frame.dtype])
    count, data = frame.data.nbytes // DTYPE_BYTES[dtype], frame.data.cast("B")
    return [(tag, Frame(dtype, (count,), data[: count * DTYPE_BYTES[dtype]]))]


def _reshaped(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    count = frame.payload_bytes // DTYPE_BYTES[frame.dtype]
    if rng.random() < 0.5:
        return [(tag, Frame(frame.dtype, (1, count, 1), frame.data))]
    few = rng.randrange(count) if count else 0
    data = frame.data.cast("B")[: few * DTYPE_BYTES[frame.dtype]]
    return [(tag, Frame(frame.dtype, (few,), data))]


def _retagged(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    channel, _, rest = tag.partition("/")
    return [(rng.choice([f"{channel}/x{rest}", f"x{tag}", "run/0/0"]), frame)]


def _flipped(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    data = bytearray(frame.data.cast("B"))
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return [(tag, Frame(frame.dtype, frame.shape, memoryview(data)))]


def _redrawn(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    data = bytearray(rng.randbytes(frame.data.nbytes))
    return [(tag, Frame(frame.dtype, frame.shape, memoryview(data)))]


def _edited(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    """Change bytes as files are changed; what is too long or short keeps its first bytes."""
    data = bytes(frame.data.cast("B"))
    made = change_bytes(data, Choices(rng.randbytes(64))) if data else data
    made = made[: len(data)].ljust(len(data), b"\0")
    return [(tag, Frame(frame.dtype, frame.shape, memoryview(bytearray(made))))]


def _doubled(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    return [(tag, frame), (tag, frame)]


def _dropped(rng: random.Random, tag: str, frame: Frame) -> list[tuple[str, Frame]]:
    return []


CHANGES: dict[str, Change] = {
    "type": _retyped,
    "shape": _reshaped,
    "tag": _retagged,
    "a bit": _flipped,
    "all words": _redrawn,
    "bytes": _edited,
    "sent twice": _doubled,
    "not sent": _dropped,
}


class _Changed(Tap):
    """A link that changes the message of a number, counted over all of its party's links."""

    def __init__(self, inner: Any, at: int, change: Any, sent: list[Any]) -> None:
        super().__init__(inner, [], sent)
        self._at, self._change = at, change

    def send(self, tag: str, frame: Frame, *, phase: Any = "online") -> None:
        self._sent.append((self.peer, tag, frame))
        is_it = len(self._sent) - 1 == self._at
        for name, one in self._change(tag, frame) if is_it else [(tag, frame)]:
            self._inner.send(name, one, phase=phase)


def _chat(wrap: Any) -> list[int]:
    def talk(client: Any) -> list[int]:
        memory = SealedMemory()
        first = say(client, memory, PROMPT, 2)
        memory.rewind(len(PROMPT))
        return first + say(client, memory, [9], ANSWER - 2)

    found, _ = among_three(MODEL, talk, wrap=wrap, meeting=SOON)
    return list(found)


def changed(seed: int, count: int) -> Iterator[Tried]:
    """A changed message is refused by name or computed with; no other error, nobody waits."""
    sent = defaultdict[str, list[Any]](list)
    wanted = _chat(lambda me, link: Tap(link, [], sent[me]))
    assert wanted == plainly(MODEL, PROMPT, 2) + plainly(MODEL, [*PROMPT, 9], ANSWER - 2)
    rng = coins("messages", seed)
    for number in range(count):
        who, kind = rng.choice(list(sent)), rng.choice(list(CHANGES))
        at = rng.randrange(len(sent[who]))
        peer, tag, _ = sent[who][at]
        noted: list[Any] = []
        draw = coins("messages", seed, number)

        def change(tag: str, frame: Frame, kind: str = kind, draw: Any = draw) -> Any:
            return CHANGES[kind](draw, tag, frame)

        def wrap(me: str, link: Any, who: str = who, at: int = at, noted: Any = noted) -> Any:
            return _Changed(link, at, change, noted) if me == who else link

        try:
            got = _chat(wrap)
            found = "the same tokens" if got == wanted else "other tokens, not noticed"
            assert all(0 <= token < MODEL.architecture.vocab for token in got)
        except TacitError as error:
            found = f"refused: {type(error).__name__}"
        yield Tried(f"{kind} of message {at} of {who}, {tag} to {peer}", found)
