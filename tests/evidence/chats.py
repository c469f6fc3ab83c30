"""Random sessions of sealed chats: no mask serves two passes, and every token is a right one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from evidence.experiment import Tried, coins
from evidence.streams import Streams, noted_streams
from support.cuda import playing_passes
from support.llm import ERROR, among_three, deal, talk_alone, tiny
from tacit.errors import DisagreementError, RangeError, TacitError
from tacit.llm import LanguageModel, Sampling, logits
from tacit.llm.sealed import SealedClient, SealedMemory, open_sealed_vault

FAMILIES = ("llama", "gpt2", "qwen3", "gemma3", "glm4")
MOST_READ = 30


class Kill(TacitError):
    """A party that is gone in the midst of a pass."""


class Refused(TacitError):
    """A user that is told that its owner does not keep a conversation."""


class _Deadly:
    """A link over which a party dies instead of sending one of its messages."""

    def __init__(self, inner: Any, talker: Talker) -> None:
        self._inner, self._talker, self.peer = inner, talker, inner.peer

    def send(self, tag: str, frame: Any, **how: Any) -> None:
        if tag.startswith(("run/", "deal/")):
            self._talker.sent += 1
            if self._talker.sent == self._talker.dies_at:
                self._talker.done.append("kill")
                raise Kill("gone")
        self._inner.send(tag, frame, **how)

    def recv(self, tag: str) -> Any:
        return self._inner.recv(tag)

    def close(self, **how: Any) -> None:
        self._inner.close(**how)


@dataclass
class Talker:
    """Does at random what a user can do, and holds every token against the plain model."""

    model: LanguageModel
    rng: random.Random
    memories: list[SealedMemory] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    tokens: int = 0
    close: int = 0

    sent: int = 0
    dies_at: int = 0
    can_break: bool = False

    def begin(self, *, may_break: bool) -> None:
        """Say what will happen in the next session."""
        self.can_break, self.sent = may_break, 0
        is_killed = may_break and self.rng.random() < 0.4
        self.dies_at = self.rng.randint(1, 600) if is_killed else 0
        self.done.append("|")

    def wrap(self, me: str, link: Any) -> Any:
        """Let a party die in the midst of a pass."""
        return _Deadly(link, self) if self.dies_at else link

    def talk(self, client: SealedClient) -> None:
        """Take some turns in a session."""
        check = client._check_range

        def whole(strange: Any) -> None:
            assert all(float(one).is_integer() for one in strange), "a count is no whole number"
            check(strange)

        client._check_range = whole
        for _ in range(self.rng.randint(1, 4)):
            if not self.memories or self.rng.random() < 0.25:
                self.memories.append(SealedMemory())
                self.done.append("begin")
            memory = self.rng.choice(self.memories[-3:])
            try:
                self._turn(client, memory)
            except DisagreementError as error:
                self.memories.remove(memory)  # its owner died in the midst of it
                raise Refused("begin anew") from error

    def _turn(self, client: SealedClient, memory: SealedMemory) -> None:
        rng = self.rng
        if memory.read and (rng.random() < 0.3 or len(memory.read) > MOST_READ):
            memory.rewind(rng.randrange(min(len(memory.read), MOST_READ)))
            self.done.append("rewind")
        fresh = [rng.randrange(self.model.architecture.vocab) for _ in range(rng.randint(1, 5))]
        text, answer = [*memory.read, *fresh], rng.randint(1, 5)
        if self.can_break and rng.random() < 0.15:
            self.done.append("refused")
            with pytest.MonkeyPatch.context() as patch, suppress(RangeError):
                patch.setattr(client, "_check_range", _refuses)
                next(client.generate(memory, fresh, Sampling(), limit=1))
            return
        leaves = rng.random() < 0.3
        stream = client.generate(memory, fresh, Sampling(), limit=answer + leaves)
        for _ in range(answer):
            token = next(stream)
            self._check(text, token)
            text.append(token)
        if leaves:  # what was ordered behind it is dropped
            self.done.append("drop")
        stream.close()

    def found(self, where: str, streams: Streams) -> Iterator[Tried]:
        """Say what came of all sessions."""
        assert not streams.twice(), f"{where}: drawn twice: {streams.twice()}"
        what = f"{where} {' '.join(self.done)}: {streams.count} generators"
        yield Tried(what, "tokens that are the plain ones", self.tokens - self.close)
        if self.close:
            yield Tried(where, "tokens as good as the plain one within the error", self.close)

    def _check(self, text: list[int], token: int) -> None:
        """A token is the plain one, or one that the stated error cannot tell from it."""
        scores = logits(self.model, text)[-1].double()
        assert float(scores.max() - scores[token]) < 2 * ERROR, f"a wrong token after {len(text)}"
        self.tokens += 1
        self.close += int(scores.argmax()) != token


def _refuses(strange: Any) -> None:
    raise RangeError("as if a row were too long")


def sessions(seed: int, count: int) -> Iterator[Tried]:
    """No generator serves two passes of a live session, and all tokens are the plain ones."""
    for at in range(count):
        rng = coins("sessions", seed, at)
        family = rng.choice(FAMILIES)
        model = tiny(family, seed=at, layers=1)
        vault, talker = open_sealed_vault(model), Talker(model, rng)
        with noted_streams() as streams:
            for _ in range(rng.randint(1, 3)):  # conversations are taken up again
                talker.begin(may_break=True)
                how = {"vault": vault, "wrap": talker.wrap}
                with suppress(Kill, Refused):
                    among_three(model, talker.talk, **how)
        yield from talker.found(f"session {at}, {family}", streams)


def recorded(seed: int, count: int) -> Iterator[Tried]:
    """Every recorded pass is played with the material of its own number, fetched once."""
    for at in range(count):
        rng = coins("recorded", seed, at)
        family = rng.choice(FAMILIES)
        model = tiny(family, seed=at, layers=1)
        talker, is_dealt = Talker(model, rng), at % 6 == 5
        with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
            patch.setattr("tacit.llm.sealed.passes.ROOM", 4)  # recorded anew every four keys
            patch.setattr("tacit.llm.sealed.table._MOST_OPEN", 2)
            played = playing_passes(patch)
            talker.begin(may_break=False)
            if is_dealt:
                path, vault, _ = deal(model, Path(folder), prompt=4, tokens=24)
                with noted_streams() as streams:
                    talk_alone(model, vault, path, talker.talk)
            else:
                with noted_streams() as streams:
                    among_three(model, talker.talk)
        runs = [(me, run) for me, _, run in played]
        assert len(set(runs)) == len(runs), "a recording was played twice for one number"
        where = f"{'dealt' if is_dealt else 'live'} session {at}, {family}"
        yield from talker.found(where, streams)
        yield Tried(where, "passes that were recorded or played", len(runs))
