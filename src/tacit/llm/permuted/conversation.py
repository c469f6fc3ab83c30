"""A conversation of the user: read a prompt, choose tokens, read their names."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.llm.model.plain import Between, check_ask, no_word
from tacit.llm.parties import Wait
from tacit.llm.permuted.asking import Asking, Shown
from tacit.llm.permuted.batch import Batch
from tacit.llm.permuted.client import Client, Memory, Prefetch
from tacit.llm.permuted.forecast import choose_form, leaks
from tacit.llm.permuted.messages import CLOSE, NAME, RUN, STEP, Channel
from tacit.llm.permuted.prepare import PreparedBatch
from tacit.llm.permuted.prf_stream import picks, shift_of, unpad
from tacit.llm.sampling import Sampling, chooser, penalise

Choose = Callable[[Tensor], int]
"""Given the scores of all tokens, in an order that the user does not know, choose a place."""

Adjust = Callable[[Tensor, Tensor], Tensor]
"""Given scores, and how often each of their tokens came before, return other scores."""


@dataclass(frozen=True, eq=False)
class _At:
    """A run of a batch whose scores are known, or will be."""

    prepared: PreparedBatch
    pads: Tensor
    run: int = 0

    @property
    def batch(self) -> Batch:
        return self.prepared.batch


def _silent(seconds: float) -> None:
    """Say nothing while waiting."""


class Conversation:
    """One text that grows: read a prompt, write an answer, and so on. For one thread at a time.

    Guarantee: see `Client`. Cost: see `forecast`.
    """

    def __init__(self, client: Client, memory: Memory | None = None) -> None:
        index, self.memory = client.open(memory)
        self._client, self._index, self._plan = client, index, client.plan
        seats = client.seats
        talk = Channel(client.session, seats.owner, f"run{index}", client.plan.device)
        self._asking = Asking(client.plan, talk, self.memory.cached, self.memory.masked_kv)
        self._prefetch = Prefetch(client, index, self.memory)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"tacit-ask-{index}")

    def generate(
        self,
        ids: Sequence[int],
        choose: Choose,
        *,
        limit: int,
        on_wait: Wait = _silent,
        between: Between = no_word,
        adjust: Adjust | None = None,
    ) -> Generator[int, None, None]:
        """Read ``ids``, then yield up to ``limit`` tokens, each as soon as its name is known.

        A step starts before the token that it reads is named. When the caller stops at a token
        that is not the last it asked for, that token has been read. What ``adjust`` makes of the
        scores is what ``choose`` gets. ``between`` is called between the batches in which ``ids``
        are read; what it raises ends the answer there.

        Raises:
            DataError: an id is not in the vocabulary, or the text does not fit the context.
            ConfigError: scores are to be adjusted, and this session does not show counts.
        """
        if adjust is not None and not self._plan.counts:
            raise ConfigError(
                "this session does not show which tokens came before, which a repetition penalty "
                "needs: leave it out, or ask for counts (--counts) at every party"
            )

        def pick(shown: Shown) -> int:
            scores, counts = shown
            if adjust is None or counts is None:
                return choose(scores[-1])
            return choose(adjust(scores[-1], counts[-1]))

        a, past = self._plan.architecture, len(self.memory.read)
        check_ask(a, past, ids, limit)
        steps = min(limit - 1, a.context - past - len(ids))
        self._prefetch.plan(self._batches(len(ids), steps))
        here, shown = self._read(ids, on_wait, between)
        for _ in range(steps):
            place = pick(shown)
            if here.run + 1 < here.batch.runs:
                there = replace(here, run=here.run + 1)
            else:
                there = _At(*self._prefetch.take(on_wait))
            stepping = self._step(here, place, there)
            token = self._named(here, place)
            try:
                yield token
            finally:  # a caller that stops here leaves owner and user at the same step
                shown = stepping.result()
                self._done(there, [token])
            here = there
        place = pick(shown)
        self._command(NAME, here, self._shift(here, place))
        yield self._named(here, place)

    def score(self, ids: Sequence[int], *, on_wait: Wait = _silent) -> Tensor:
        """Read ``ids`` and return the scores after each, every row in an order of its own.

        For measurements on a text of one chunk: without the owner's permutations a row says how
        sure the model is, not of what.
        """
        check_ask(self._plan.architecture, len(self.memory.read), ids, 1)
        first = next(self._batches(len(ids), 0, chunk=len(ids), scored=len(ids)))
        self._prefetch.plan(iter([first]))
        _, (scores, _) = self._read(ids, on_wait)
        return scores

    def close(self) -> None:
        """End the conversation at all parties."""
        self._pool.shutdown()
        self._prefetch.close()
        octets = torch.tensor([CLOSE, 0, 0, 0]).view(torch.uint8)
        tag = f"run{self._index}/next"
        self._client.session.send(self._client.seats.owner, tag, octets, phase="setup")

    def _batches(
        self, count: int, steps: int, *, chunk: int | None = None, scored: int = 1
    ) -> Iterator[Batch]:
        """Plan a prompt and as many steps, block by block."""
        memory, ahead = self.memory, self._client.ahead
        past, masked_kv = len(memory.read), memory.masked_rows
        if self._plan.architecture.family == "chatglm" and past == 0:
            chunk, memory.prompt = count, count - 1
        sizes = [*_split(count, chunk or ahead.chunk), *_split(steps, ahead.block)]
        prompts = len(_split(count, chunk or ahead.chunk))
        for number, rows in enumerate(sizes):
            form = None
            if number >= prompts:
                form = self._client.form or choose_form(
                    self._plan, self._client.network, past=past, rows=rows, masked_kv=masked_kv
                )
            batch = Batch(
                number=memory.batches,
                past=past,
                rows=rows,
                prompt=memory.prompt,
                masked_kv=masked_kv,
                form=form,
                scored=scored,
            )
            memory.batches += 1
            yield batch
            past, masked_kv = batch.end, batch.masked_after(batch.runs)

    def _read(
        self, ids: Sequence[int], on_wait: Wait, between: Between = no_word
    ) -> tuple[_At, Shown]:
        """Run the prompt, in its chunks."""
        at, left = None, list(ids)
        while left:
            at = _At(*self._prefetch.take(on_wait))
            now, left = left[: at.batch.rows], left[at.batch.rows :]
            seen = {*self.memory.read, *now}
            self._command(RUN, at, 0, self._asking.prompt(at.prepared, now, seen))
            shown = self._asking.run(at.prepared, 0)
            self._done(at, now)
            if left:
                between()
        assert at is not None  # noqa: S101 - _check has refused an empty prompt
        return at, shown

    def _step(self, here: _At, place: int, there: _At) -> "Future[Shown]":
        """Start the next run from the chosen place."""
        hot = self._asking.choice(here.prepared, here.run, place)
        self._command(STEP, there, self._shift(here, place), hot)
        return self._pool.submit(self._asking.run, there.prepared, there.run)

    def _shift(self, here: _At, place: int) -> int:
        """Hide our place by the one whose pad the dealer gave us."""
        batch, vocab = here.batch, self._plan.architecture.vocab
        pick = int(picks(here.prepared.prf, batch.runs, vocab)[here.run])
        return shift_of(place, pick, vocab)

    def _named(self, here: _At, place: int) -> int:
        """Learn the token at our place."""
        tag, vocab = f"id{self._index}/table", self._plan.architecture.vocab
        seats = self._client.seats
        table = self._client.session.recv(seats.owner, tag, (vocab,), dtype=torch.int32)
        token = unpad(table, place, int(here.pads[here.run]))
        if not 0 <= token < vocab:
            raise DataError("the owner and the dealer disagree about the name of a token")
        return token

    def _command(self, op: int, at: _At, shift: int, hot: Tensor | None = None) -> None:
        octets = torch.tensor([op, at.batch.number, at.run, shift]).view(torch.uint8)
        if hot is not None:
            octets = torch.cat([octets, hot.reshape(-1).cpu()])
        tag = f"run{self._index}/next"
        self._client.session.send(self._client.seats.owner, tag, octets)

    def _done(self, at: _At, ids: list[int]) -> None:
        """Remember a run, and write down what it showed."""
        memory, batch = self.memory, at.batch
        memory.read += ids
        memory.masked_rows = batch.masked_after(at.run + 1)
        if at.run:
            memory.history.pop()
        memory.history.append((batch, at.run + 1))
        self._client.record(leaks(self._plan, batch, at.run, self._client.seats))


def _split(count: int, size: int) -> list[int]:
    """Cut a count into parts of one size, and a rest."""
    return [min(size, count - at) for at in range(0, count, size)]


class PermutedSpeaker:
    """Speak in conversations, each with threads of its own that order material ahead.

    Guarantee: that of `tacit.llm.permuted`: the owner and the dealer learn lengths and times.
    """

    def __init__(self, client: Client, on_wait: Wait) -> None:
        self._client, self._on_wait = client, on_wait
        self._open: dict[int, Conversation] = {}

    def begin(self) -> Memory:
        """Begin a conversation."""
        return self._take_up(None).memory

    def generate(
        self,
        memory: Memory,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        limit: int,
        between: Between = no_word,
    ) -> Generator[int, None, None]:
        """Choose among scores in an order that we do not know.

        Whether a penalty is used does not change messages: the owner must not learn that.
        """
        choose_next = chooser(sampling)

        def adjust(scores: Tensor, counts: Tensor) -> Tensor:
            return penalise(scores, counts > 0, sampling.repetition_penalty)

        return (self._open.get(memory.number) or self._take_up(memory)).generate(
            ids,
            lambda scores: choose_next(scores, ()),
            limit=limit,
            on_wait=self._on_wait,
            between=between,
            adjust=adjust if sampling.needs_places else None,
        )

    def leave(self) -> None:
        """End all conversations."""
        for conversation in self._open.values():
            conversation.close()
        self._client.close()

    def _take_up(self, memory: Memory | None) -> Conversation:
        conversation = Conversation(self._client, memory)
        self._open[conversation.memory.number] = conversation
        return conversation
