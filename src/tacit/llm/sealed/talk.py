"""The user's end of sealed inference: read a text, have a token chosen, and so on."""

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor

from tacit.errors import DataError, RangeError
from tacit.llm.claims import Reveal
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.plain import Between, check_ask, no_word
from tacit.llm.parties import PATIENCE_S, Seats, Wait
from tacit.llm.sampling import Place, Sampling, chooser, generator
from tacit.llm.sealed.choosing import check_wish, wish
from tacit.llm.sealed.dealing import fetch_material
from tacit.llm.sealed.dealt import DealtTable, meet_owner
from tacit.llm.sealed.passes import CHUNK, KvShares, Pass, leaks_of_pass
from tacit.llm.sealed.schedule import Reading, Schedule
from tacit.llm.sealed.table import Table, sit_down
from tacit.mpc.material.offline import Material
from tacit.party import Session
from tacit.ring import Prg


@dataclass(eq=False)
class SealedMemory:
    """What the user keeps of a conversation, enough to go on in another session."""

    number: int = field(default_factory=lambda: int(Prg.from_os().below(1 << 62, 1)))
    read: list[int] = field(default_factory=list, repr=False)
    kv: KvShares = field(default_factory=KvShares, repr=False)
    prompt: int = 0

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens; costs nothing."""
        del self.read[length:]


class SealedClient:
    """A user's session with an owner and a dealer under `sealed`.

    Guarantee: that of `tacit.mpc`'s sealed protocol: the owner and the dealer learn lengths and
    times; the user learns the bounds of the model's values and the tokens that are chosen (or, if
    the owner agrees to that, the scores). With its own noise (``token``) it may choose what a
    token compares; with the dealer's (``sample``) it gets samples, if it follows the protocol.
    """

    def __init__(
        self,
        session: Session,
        architecture: Architecture,
        *,
        reveal: Reveal = "token",
        seats: Seats | None = None,
        device: str = "cpu",
        material: Material | None = None,
        on_wait: Wait = lambda seconds: None,
        on_empty: Callable[[], None] = lambda: None,
    ) -> None:
        """Sit down with the owner and the dealer, or with the owner alone.

        Args:
            session: my end of the chat.
            architecture: the model's.
            reveal: what is shown.
            seats: who is who.
            device: where weights lie and are multiplied; a card computes passes of one token whole.
            material: what was dealt before, if there is no dealer in the session.
            on_wait: told, about once a second, for how many seconds a token was waited for.
            on_empty: told when an answer ends because the material does.
        """
        self.session, self.architecture, self.reveal = session, architecture, reveal
        self.seats = seats or Seats()
        table = sit_down(session, architecture, reveal=reveal, seats=self.seats, device=device)
        self._table: Table | DealtTable = table
        self._reading: Reading | None = None
        self._on_wait, self._on_empty = on_wait, on_empty
        if material is not None:
            self._table = meet_owner(table, material, device=device)
            self._reading = Reading(self._table.schedule)
        self.saturated = 0
        """Rows of attention so far with scores beyond 40, which count as 48 at most."""

    def begin(self) -> SealedMemory:
        """Begin a conversation; the others hear of it with its first pass."""
        return SealedMemory()

    def generate(
        self,
        memory: SealedMemory,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        limit: int,
        between: Between = no_word,
    ) -> Generator[int, None, None]:
        """Read ``ids``, then yield up to ``limit`` tokens.

        ``between`` is called between passes that read ``ids``; what it raises ends the answer.

        Raises:
            DataError: an id is not in the vocabulary, or the text does not fit the context.
            ConfigError: the tokens cannot be chosen like that; says why.
            RangeError: a row was too long or too short for what the owner measured.
        """
        if self.reveal != "scores":
            check_wish(sampling, self.reveal)
        check_ask(self.architecture, len(memory.read), ids, limit)
        choose = _choose_by(sampling, self.reveal, self.architecture.vocab)
        fresh = list(ids)
        for left in reversed(range(limit)):
            if len(memory.read) + len(fresh) > self.architecture.context:
                return
            if self._reading is not None and left < limit - 1 and not self._reading.left:
                self._on_empty()
                return
            with _watched(self._on_wait):
                fresh = [self._next(memory, fresh, choose, between, has_next=left > 0)]
            yield fresh[0]

    def fetch_material(
        self,
        schedule: Schedule,
        path: Path,
        *,
        forecast: Callable[[int, int], None] = lambda size, passes: None,
    ) -> int:
        """Have a session that comes later dealt for; see `tacit.llm.sealed.dealing`."""
        assert isinstance(self._table, Table)  # noqa: S101 - the dealer is in the session
        return fetch_material(self._table, schedule, path, forecast=forecast)

    def leave(self) -> None:
        """Tell the others that no pass follows."""
        self._table.leave()

    def _next(
        self,
        memory: SealedMemory,
        fresh: list[int],
        choose: "_Choose",
        between: Between,
        *,
        has_next: bool,
    ) -> int:
        """Read tokens, in chunks, and return the one that follows them.

        If another may follow, it is ordered: the dealer deals for it meanwhile.
        """
        text, shown, (inputs_of, token_of) = [*memory.read, *fresh], None, choose
        for step, rows, end in self._passes(memory, text, has_next=has_next):
            self._table.announce(step)
            # A pass that breaks has told its sizes all the same.
            self.session.ledger.record(
                *leaks_of_pass(step, self.reveal, self.seats, self.session.peers)
            )
            inputs = self._table.passing.inputs(rows)
            if step.is_scored:
                inputs |= inputs_of(text[:end])
            # Dealt ahead, keys and values stay in the passes; nothing is taken up again.
            is_kept = self._reading is None
            kept = memory.kv.upto(step.past) if is_kept else {}
            outcome = self._table.compute(step, inputs, kept)
            self._check_range(outcome.strange)
            if is_kept:
                memory.kv.extend(step.past, outcome.keys, outcome.values)
            memory.read, shown = text[:end], outcome.shown
            if not step.is_scored:
                between()
        assert shown is not None  # noqa: S101 - the last pass is scored
        return token_of(shown, memory.read)

    def _passes(
        self, memory: SealedMemory, text: list[int], *, has_next: bool
    ) -> Iterator[tuple[Pass, list[int], int]]:
        """Yield passes that read a text to its end, the rows of each, and where these end."""
        if self._reading is not None:
            self._reading.check(text)
            yield from self._reading.passes(text)
            return
        a, past, size = self.architecture, len(memory.read), CHUNK
        if a.family == "chatglm" and not past:  # it reads its prompt in both directions, at once
            memory.prompt, size = len(text) - 1, len(text)
        for at in range(past, len(text), size):
            end = min(at + size, len(text))
            is_last = end == len(text)
            step = Pass(
                conversation=memory.number,
                past=at,
                rows=end - at,
                prompt=memory.prompt,
                is_scored=is_last,
                expects_next=has_next and is_last and end < a.context and self._table.can_expect,
            )
            yield step, text[at:end], end

    def _check_range(self, strange: Tensor | None) -> None:
        """Refuse a pass of which a value was out of range, and count what saturated."""
        assert strange is not None  # noqa: S101 - it is opened to the user
        wrong, loud = (round(float(one)) for one in strange)
        self.saturated += loud
        if wrong:
            raise RangeError(
                f"{wrong} times a row of this pass was longer or shorter than the model's owner "
                "has measured, so that its tokens would be wrong; nothing of it is kept. Ask in "
                "other words, or have the owner measure texts like this one (open_sealed_vault, "
                "probes)"
            )


_Choose = tuple[
    Callable[[Sequence[int]], dict[str, Tensor]], Callable[[Tensor, Sequence[int]], int]
]
"""What the user hands in for a text, and how a token follows from what it is shown."""


def _choose_by(sampling: Sampling, reveal: Reveal, vocab: int) -> _Choose:
    if reveal == "scores":  # as in the clear
        choose = chooser(sampling)

        def best(shown: Tensor, said: Sequence[int]) -> int:
            return int(choose(shown[0], [Place(one) for one in said]))

        return lambda said: {}, best

    def named(shown: Tensor, said: Sequence[int]) -> int:
        token = round(float(shown[0]))
        if not 0 <= token < vocab:
            raise DataError("the owner's answer is not the name of a token")
        return token

    if reveal == "sample":  # by the dealer's noise
        heat = torch.full((1, 1), sampling.temperature, dtype=torch.float64)
        return lambda said: {"temperature": heat}, named
    prg = generator(sampling)  # by secret noise and slopes
    return lambda said: wish(sampling, prg, earlier=set(said), vocab=vocab), named


@contextmanager
def _watched(on_wait: Wait) -> Iterator[None]:
    """Tell about a wait while the block waits: a pass has no place at which to look around."""
    is_over, began = threading.Event(), monotonic()

    def watch() -> None:
        while not is_over.wait(PATIENCE_S):
            on_wait(monotonic() - began)

    watcher = threading.Thread(target=watch, name="tacit-wait", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
