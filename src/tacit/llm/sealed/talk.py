"""The user's end of sealed inference: read a text, have a token chosen, and so on."""

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from tacit.errors import DataError, RangeError
from tacit.llm.backend.sampling import Place, Sampling, chooser, generator
from tacit.llm.claims import Reveal
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.plain import Between, no_word
from tacit.llm.parties import Seats
from tacit.llm.sealed.choosing import check_wish, wish
from tacit.llm.sealed.dealing import fetch_material
from tacit.llm.sealed.dealt import DealtTable, meet_owner
from tacit.llm.sealed.passes import CHUNK, LEAVE, KvShares, Pass
from tacit.llm.sealed.schedule import Reading, Schedule
from tacit.llm.sealed.table import sit_down
from tacit.mpc.material.offline import Material
from tacit.party import Session
from tacit.result import Leak
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
            on_empty: told when an answer ends because the material does.
        """
        self.session, self.architecture, self.reveal = session, architecture, reveal
        self.seats = seats or Seats()
        self._table = sit_down(
            session, architecture, reveal=reveal, seats=self.seats, device=device
        )
        self._dealt, self._on_empty = None, on_empty
        if material is not None:
            self._dealt = meet_owner(self._table, material, device=device)
            self._reading = Reading(self._dealt.schedule)
        self.saturated = 0
        """Rows of attention so far with scores beyond 40, which count as 48 at most."""

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
        self._check(memory, ids, limit)
        choose = self._chooser(sampling)
        fresh = list(ids)
        for left in reversed(range(limit)):
            if len(memory.read) + len(fresh) > self.architecture.context:
                return
            if self._dealt is not None and left < limit - 1 and not self._reading.left:
                self._on_empty()
                return
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
        return fetch_material(self._table, schedule, path, forecast=forecast)

    def leave(self) -> None:
        """Tell the others that no pass follows."""
        if self._dealt is not None:
            self._dealt.leave()
        else:
            self._table.leave(LEAVE)

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
        if self._dealt is not None:
            return self._next_dealt(self._dealt, memory, fresh, choose, between)
        if self.architecture.family == "chatglm" and not memory.read:
            memory.prompt = len(fresh) - 1
        shown = None
        for now, is_last in self._chunks(fresh, memory):
            step = Pass(
                conversation=memory.number,
                past=len(memory.read),
                rows=len(now),
                prompt=memory.prompt,
                is_scored=is_last,
                expects_next=has_next and is_last and self._has_room(memory, now),
            )
            self._table.announce(step.words())
            self._note_sizes(step)
            inputs = self._table.passing.inputs(now)
            if is_last:
                inputs |= choose.inputs([*memory.read, *now])
            kept = memory.kv.upto(step.past)
            outcome = self._table.compute(step, inputs, kept)
            self._check_range(outcome.strange)
            memory.kv.extend(step.past, outcome.keys, outcome.values)
            memory.read += now
            shown = outcome.shown
            if not is_last:
                between()
        assert shown is not None  # noqa: S101 - the last chunk is scored
        return choose.token(shown, memory.read)

    def _next_dealt(
        self,
        dealt: DealtTable,
        memory: SealedMemory,
        fresh: list[int],
        choose: "_Choose",
        between: Between,
    ) -> int:
        """Do as `_next` with the passes that were dealt for; keys and values stay in them."""
        text, shown = [*memory.read, *fresh], None
        self._reading.check(text)
        for step, rows, end in self._reading.passes(text):
            dealt.announce(step)
            self._note_sizes(step)
            inputs = dealt.passing.inputs(rows)
            if step.is_scored:
                inputs |= choose.inputs(text[:end])
            outcome = dealt.compute(step, inputs)
            self._check_range(outcome.strange)
            memory.read, shown = text[:end], outcome.shown
            if not step.is_scored:
                between()
        assert shown is not None  # noqa: S101 - the last pass is scored
        return choose.token(shown, memory.read)

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

    def _has_room(self, memory: SealedMemory, now: list[int]) -> bool:
        is_within = len(memory.read) + len(now) < self.architecture.context
        return is_within and self._table.can_expect

    def _chunks(self, fresh: list[int], memory: SealedMemory) -> Iterator[tuple[list[int], bool]]:
        # ChatGLM reads its prompt in both directions, so all at once.
        is_whole = self.architecture.family == "chatglm" and not memory.read
        size = len(fresh) if is_whole else CHUNK
        for at in range(0, len(fresh), size):
            yield fresh[at : at + size], at + size >= len(fresh)

    def _chooser(self, sampling: Sampling) -> "_Choose":
        if self.reveal == "scores":
            return _ByScores(sampling)
        if self.reveal == "sample":
            return _BySample(sampling, self.architecture.vocab)
        return _ByToken(sampling, self.architecture.vocab)

    def _check(self, memory: SealedMemory, ids: Sequence[int], limit: int) -> None:
        a, past = self.architecture, len(memory.read)
        if not ids or limit < 1:
            raise DataError(f"wanted at least one token to read and write, got {len(ids)}, {limit}")
        if past + len(ids) > a.context:
            raise DataError(
                f"the text is too long: {past + len(ids)} tokens, the model's context is "
                f"{a.context}"
            )
        if bad := [one for one in ids if not 0 <= one < a.vocab]:
            raise DataError(f"token ids lie between 0 and {a.vocab - 1}, got {bad[0]}")

    def _note_sizes(self, step: Pass) -> None:
        """Write down what a pass tells: a pass that breaks has told its sizes all the same."""
        self.session.ledger.record(
            *leaks_of_pass(step, self.reveal, self.seats, self.session.peers)
        )


def leaks_of_pass(
    step: Pass, reveal: Reveal, seats: Seats, parties: Sequence[str]
) -> tuple[Leak, ...]:
    """List what a pass tells beside what is opened; a dealer that dealt before is not there."""
    chosen = Leak(
        to=seats.user,
        what="how two scores that it chooses compare, if it hands in noise or slopes for that: "
        "each token can be such an answer",
        why="noise and slopes are the user's own",
        kind="protocol",
        elements=1,
    )
    sizes = tuple(
        Leak(
            to=peer,
            what="how many tokens are read, taken back and written, and when",
            why="sizes are not hidden",
            kind="size",
            elements=step.rows - step.pads,
        )
        for peer in (seats.owner, seats.dealer)
        if peer in parties
    )
    return (chosen, *sizes) if step.is_scored and reveal == "token" else sizes


class _ByScores:
    """Choose from all scores, as in the clear."""

    def __init__(self, sampling: Sampling) -> None:
        self._choose = chooser(sampling)

    def inputs(self, said: Sequence[int]) -> dict[str, Tensor]:
        return {}

    def token(self, shown: Tensor, said: Sequence[int]) -> int:
        return int(self._choose(shown[0], [Place(one) for one in said]))


class _ByToken:
    """Have the token chosen under the protocol, with secret noise and slopes."""

    def __init__(self, sampling: Sampling, vocab: int) -> None:
        self._sampling, self._vocab = sampling, vocab
        self._prg = generator(sampling)

    def inputs(self, said: Sequence[int]) -> dict[str, Tensor]:
        return wish(self._sampling, self._prg, earlier=set(said), vocab=self._vocab)

    def token(self, shown: Tensor, said: Sequence[int]) -> int:
        return _token(shown, self._vocab)


class _BySample:
    """Have the token drawn with the dealer's noise."""

    def __init__(self, sampling: Sampling, vocab: int) -> None:
        self._heat, self._vocab = sampling.temperature, vocab

    def inputs(self, said: Sequence[int]) -> dict[str, Tensor]:
        return {"temperature": torch.full((1, 1), self._heat, dtype=torch.float64)}

    def token(self, shown: Tensor, said: Sequence[int]) -> int:
        return _token(shown, self._vocab)


def _token(shown: Tensor, vocab: int) -> int:
    token = round(float(shown[0]))
    if not 0 <= token < vocab:
        raise DataError("the owner's answer is not the name of a token")
    return token


_Choose = _ByScores | _ByToken | _BySample
