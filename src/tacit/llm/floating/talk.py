"""The user's end of inference in floating-point shares."""

from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.llm.backend.sampling import Sampling, chooser
from tacit.llm.floating.interpreters import AskingInterpreter, Mail, PreparingInterpreter
from tacit.llm.floating.parties import (
    NAME,
    NEXT,
    agree,
    check_ratio,
    hear_scales,
    hot_mask,
    matrices,
    noise_with,
)
from tacit.llm.floating.program import Rows, run_pass
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.parts import Between, no_word
from tacit.llm.permuted.prf_stream import picks, shift_of, unpad
from tacit.llm.permuted.seats import Seats
from tacit.llm.sealed.passes import CHUNK, LEAVE, Pass
from tacit.party import Session
from tacit.result import Leak
from tacit.ring import Prg


def check_sampling(sampling: Sampling) -> None:
    """Refuse a repetition penalty: nobody counts tokens here."""
    if sampling.needs_places:
        raise ConfigError("a chat in floating-point shares offers no repetition penalty")


class FloatingMemory:
    """What the user keeps of a conversation within one session."""

    def __init__(self) -> None:
        self.number = int(Prg.from_os().below(1 << 62, 1))
        self.read: list[int] = []
        self.rows = Rows()
        self.prompt = 0

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens; costs nothing."""
        del self.read[length:]


class FloatingClient:
    """A user's session with an owner and a dealer in floating-point shares.

    Guarantee: no guarantee; see `CLAIM`.
    """

    def __init__(
        self,
        session: Session,
        architecture: Architecture,
        *,
        ratio: float = 100.0,
        seats: Seats | None = None,
    ) -> None:
        check_ratio(ratio)
        self.session, self.architecture = session, architecture
        self._seats = seats or Seats()
        agree(session, architecture, ratio)
        self._scales = hear_scales(session, self._seats, architecture, ratio)
        self._masked = {
            name: session.recv(self._seats.owner, f"setup/float {name}", shape).view(torch.float64)
            for name, shape in matrices(architecture).items()
        }
        self._outs = {name: shape[-1] for name, shape in matrices(architecture).items()}

    def generate(
        self,
        memory: FloatingMemory,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        limit: int,
        between: Between = no_word,
    ) -> Generator[int, None, None]:
        """Read ``ids``, then yield up to ``limit`` tokens.

        ``between`` is called between passes that read ``ids``; what it raises ends the answer.

        Raises:
            DataError: the text does not fit the context.
            ConfigError: a repetition penalty; here nobody counts tokens.
        """
        check_sampling(sampling)
        a, fresh, choose = self.architecture, list(ids), chooser(sampling)
        if len(memory.read) + len(fresh) > a.context or not fresh:
            raise DataError(
                f"the text has {len(memory.read) + len(fresh)} tokens, the model's context is "
                f"{a.context}"
            )
        for _ in range(limit):
            if len(memory.read) + len(fresh) > a.context:
                return
            scores, run = self._read(memory, fresh, between)
            fresh = [self._name(run, int(choose(scores[0], ())))]
            yield fresh[0]

    def leave(self) -> None:
        """Tell the others that no pass follows."""
        for peer in (self._seats.owner, self._seats.dealer):
            self.session.send(peer, NEXT, LEAVE)

    def _read(
        self, memory: FloatingMemory, fresh: list[int], between: Between
    ) -> tuple[Tensor, int]:
        """Read tokens, in chunks; return the scores after the last, and the number of its run."""
        # ChatGLM reads its prompt in both directions, so all at once.
        is_whole = self.architecture.family == "chatglm" and not memory.read
        if is_whole:
            memory.prompt = len(fresh) - 1
        size = len(fresh) if is_whole else CHUNK
        scores, run = None, 0
        for at in range(0, len(fresh), size):
            now = fresh[at : at + size]
            step = self._next_pass(memory, len(now), is_last=at + size >= len(fresh))
            scores, run = self._ask(memory, step, now)
            memory.read += now
            if not step.is_scored:
                between()
        assert scores is not None  # noqa: S101 - the last chunk is scored
        return scores, run

    def _next_pass(self, memory: FloatingMemory, rows: int, *, is_last: bool) -> Pass:
        step = Pass(
            conversation=memory.number,
            past=len(memory.read),
            rows=rows,
            prompt=memory.prompt,
            is_scored=is_last,
        )
        for peer in (self._seats.owner, self._seats.dealer):
            self.session.send(peer, NEXT, step.words())
        return step

    def _ask(self, memory: FloatingMemory, step: Pass, ids: list[int]) -> tuple[Tensor | None, int]:
        """Go through one pass: first what depends on masks alone, then the text."""
        a, seats, run = self.architecture, self._seats, self.session.begin_run()
        noise, mail = noise_with(self.session, seats.dealer, run), Mail(self.session, run)
        hot = hot_mask(noise, step, a, self._scales)
        before = Rows(dict(memory.rows.keys), dict(memory.rows.values))
        preparing = PreparingInterpreter(
            mail, seats.owner, user=noise, scales=self._scales, masked=self._masked
        )
        run_pass(preparing, a, step, preparing.linear("embed", hot), before)
        mail.send(seats.owner, _one_hot(ids, a.vocab) - hot.share, hot.spread)
        asking = AskingInterpreter(
            mail, seats.owner, user=noise, scales=self._scales, outs=self._outs
        )
        scores = run_pass(asking, a, step, asking.linear("embed", hot), memory.rows)
        self.session.ledger.record(*leaks_of_pass(self.architecture, step, self._seats))
        return scores, run

    def _name(self, run: int, place: int) -> int:
        """Learn which token a place stands for, by oblivious transfer."""
        vocab, owner = self.architecture.vocab, self._seats.owner
        prf = noise_with(self.session, self._seats.dealer, run).prf
        shift = shift_of(place, int(picks(prf, 1, vocab)[0]), vocab)
        self.session.send(owner, f"{NAME}/{run}", torch.tensor([shift]))
        pad = self.session.recv(self._seats.dealer, f"{NAME}/pad {run}", (1,), dtype=torch.int32)
        table = self.session.recv(owner, f"{NAME}/{run}", (vocab,), dtype=torch.int32)
        token = unpad(table, place, int(pad[0]))
        if not 0 <= token < vocab:
            raise DataError("the owner and the dealer disagree about the name of a token")
        return token


def leaks_of_pass(a: Architecture, step: Pass, seats: Seats) -> tuple[Leak, ...]:
    """List what a pass shows to whom."""
    total, inner = step.past + step.rows, a.heads * a.head_dim
    kv = 2 * total * a.kv_heads * a.head_dim
    seen = a.layers * step.rows * (2 * a.width + a.heads * total + a.ffn) + a.vocab
    noisy = a.layers * (step.rows * (inner + a.heads * total) + kv)
    under = "under noise that averages out over repeated texts"
    return tuple(
        Leak(
            to=to,
            what=what,
            why="sizes are not hidden" if kind else "floating-point shares: no guarantee",
            kind="size" if kind else "protocol",
            elements=elements,
        )
        for to, what, kind, elements in (
            (seats.user, "inputs of norms, softmax, activations; scores: in fresh orders", 0, seen),
            (seats.user, f"weights, queries, keys, values and attention {under}", 0, noisy),
            (seats.owner, f"the text and every value that follows from it {under}", 0, noisy),
            (seats.owner, "how many tokens are read and written, and when", 1, step.rows),
            (seats.dealer, "how many tokens are read and written, and when", 1, step.rows),
        )
    )


def _one_hot(ids: Sequence[int], vocab: int) -> Tensor:
    if bad := [one for one in ids if not 0 <= one < vocab]:
        raise DataError(f"token ids lie between 0 and {vocab - 1}, got {bad[0]}")
    hot = torch.zeros(len(ids), vocab, dtype=torch.float64)
    hot[torch.arange(len(ids)), torch.tensor(ids)] = 1
    return hot
