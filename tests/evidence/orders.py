"""What a user may ask of a sealed chat in numbers: void tokens, pads, the six words of a pass."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import SimpleNamespace

import torch

from evidence.experiment import Tried, coins
from support.llm import tiny
from tacit.errors import FrameError
from tacit.llm import Architecture
from tacit.llm.parties import Seats
from tacit.llm.sealed import Pass, Schedule
from tacit.llm.sealed.dealt import DealtTable
from tacit.llm.sealed.passes import MOST_ROWS, PASS_WORDS, read_pass, told_words
from tacit.llm.sealed.schedule import DEAL, Slots, read_schedule

ARCHITECTURES = {name: tiny(name, layers=2).architecture for name in ("llama", "gpt2", "gemma3")}


class _User:
    """A session in which the user says any two numbers."""

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def recv(self, sender: str, tag: str, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor(self._words)


def slots(seed: int, count: int) -> Iterator[Tried]:
    """Whatever voids and pads are asked for, a row sees its text alone, or is refused."""
    rng, left, at = coins("slots", seed), count, 0
    while left > 0:
        name = rng.choice(list(ARCHITECTURES))
        a, prompt = ARCHITECTURES[name], rng.randint(1, 12)
        schedule = Schedule(prompt=prompt, tokens=rng.randint(1, 40), identity=1)
        table = SimpleNamespace(
            seats=Seats(), _at=0, _slots=Slots(), _passes=schedule.passes(), session=None
        )
        done = refused = 0
        for planned in schedule.passes()[:left]:
            is_any = rng.random() < 0.3
            while True:
                voids = rng.randint(-2, planned.past + 2) if is_any else planned.past
                read = min(table._slots.read, planned.past)
                voids = voids if is_any else planned.past - rng.randint(0, read)
                pads = rng.randint(-1, planned.rows + 1) if is_any else rng.randrange(planned.rows)
                table.session = _User([voids, pads])
                try:
                    step = DealtTable.hear(table)  # type: ignore[arg-type]
                    break
                except FrameError:
                    refused, is_any = refused + 1, False
            if step is None:  # −1 void tokens mean that it leaves
                break
            table._slots.follow(step)
            _check_seen(a, step, table._slots.places())
            table._at, done, left = table._at + 1, done + 1, left - 1
        what = f"chat {at}, {name}, {schedule.about()}"
        yield Tried(what, "passes whose rows see their text alone", done)
        if refused:
            yield Tried(what, "refused by name", refused)
        at, left = at + 1, left - (not done)


def _check_seen(a: Architecture, step: Pass, held: torch.Tensor) -> None:
    """Every row sees, of each place up to its own that its window reaches, exactly one key."""
    counted = held[held >= 0].tolist()
    assert len(set(counted)) == len(counted), "a place is held twice"
    words = told_words(a, step, held)
    for window in dict.fromkeys(map(a.window_of, range(a.layers))):
        seen = words[f"seen.{window}"][: step.rows].bool()
        assert not bool(seen[:, len(held) :].any()), "a row sees a key that is not there"
        for row, place in zip(seen, step.places().tolist(), strict=True):
            first = max(0, place - window + 1) if window else 0
            got = sorted(held[row[: len(held)]].tolist())
            assert got == list(range(first, place + 1)), f"row at {place} sees {got}"


EDGES = (0, 1, 2, -1, -2, -3, 7, 15, 16, 63, 64, MOST_ROWS, 4095, 4096, 1 << 31, 1 << 61, 1 << 62)
EXTREMES = ((1 << 63) - 1, -(1 << 63))


def words(seed: int, count: int) -> Iterator[Tried]:
    """Six words at random are a pass or schedule that the model can do, or refused by name."""
    rng = coins("words", seed)
    names, found = list(ARCHITECTURES), dict.fromkeys(("a pass", "a schedule", "refused", "end"), 0)
    for _ in range(count):
        a = ARCHITECTURES[rng.choice(names)]
        given = [_word(rng) for _ in range(PASS_WORDS)]
        if rng.random() < 0.5:  # a pass that could be, but for a word or two
            past = rng.randrange(40)
            sound = [rng.getrandbits(61), past, rng.randint(1, 40 - past), 0, 1, rng.randrange(2)]
            wrong = rng.sample(range(PASS_WORDS), rng.randrange(3))
            given = [given[i] if i in wrong else sound[i] for i in range(PASS_WORDS)]
        found[_heard(a, given)] += 1
    for kind, often in found.items():
        yield Tried(f"{count} times six words", kind, often)


def _word(rng: random.Random) -> int:
    match rng.randrange(8):
        case 0:
            return rng.choice(EXTREMES)
        case 1:
            return rng.getrandbits(64) - (1 << 63)
        case 2 | 3:
            return rng.choice(EDGES)
        case _:
            return rng.randrange(-2, 6)


def _heard(a: Architecture, given: list[int]) -> str:
    """Read six words as owner and dealer do."""
    sent = torch.tensor(given)
    try:
        if given[0] == DEAL:
            schedule = read_schedule(sent, sender="user", architecture=a)
            assert schedule.words().tolist()[:5] == given[:5]
            assert schedule.prompt + schedule.tokens <= a.context
            return "a schedule"
        step = read_pass(sent, sender="user", architecture=a)
    except FrameError:
        return "refused"
    if step is None:
        assert given[0] == -1
        return "end"
    assert step.words().tolist() == given
    assert step.past + step.rows <= a.context
    held = torch.arange(step.past + step.rows)
    _check_seen(a, step, held)
    return "a pass"
