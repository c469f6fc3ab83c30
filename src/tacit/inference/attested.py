"""`protocol="enclave"`: plain computation in a process that proves what it runs.

What runs is a program of `ops`, so which tensors are read and written does not depend on what is
in them. Products with weights can go to an accelerator outside (Tramèr and Boneh, Slalom 2019):
before the rows come, r is drawn and r·W computed inside; the accelerator gets x + r,
and what it answers less r·W is x·W. `tacit.mpc.outsource` checks the answer with random vectors
(Freivalds 1977) to 2^-40. Slalom works modulo a prime of 24 bits, here words wrap at 2^64: a pad is
as uniform, and an int64 product needs no reduction.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional

from tacit import ring
from tacit.crypto import Identity, make_identity
from tacit.errors import InputError
from tacit.inference.answers import PrivateAnswer
from tacit.inference.forest import Forest
from tacit.inference.secured import INPUT, Direct, check_classes, share_input_facts
from tacit.mpc import outsource
from tacit.mpc.plan import NETWORKS
from tacit.nn import TorchOps
from tacit.nn.ops import Pair
from tacit.party import Enclave, Session, SimulatedEnclave, attest_all
from tacit.party.cost import CostedMessage, CostTally, forecast_seconds
from tacit.result import Claim, Forecast, Leak
from tacit.ring import Prg

NOTHING = "no guarantee: simulated"
_WORD_BYTES = 8


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Attested(Direct):
    """A model that is computed in the clear, inside. Made by `secure` with ``protocol="enclave"``.

    The enclave is the process of the model's owner. A job attests it to the owner of the rows
    before anything is sent (``enclave`` of its party); here a call does so with a key of its own.
    """

    def __call__(self, x: Any) -> PrivateAnswer:
        """Run both parties as threads; the server attests itself before it gets the rows."""
        with tempfile.TemporaryDirectory() as folder:
            identity = make_identity(self.crew.server, Path(folder))
            inside = SimulatedEnclave(identity, self.digest)
            return self.attested(x, identity, inside)

    def attested(self, x: Any, identity: Identity, inside: Enclave) -> PrivateAnswer:
        """Run both parties as threads, with the enclave of the server's party.

        Raises:
            DisagreementError: it runs other code or another job than the client measures.
        """

        def part(session: Session, x: Tensor | None) -> PrivateAnswer:
            mine = inside if session.me == self.crew.server else None
            keys = {self.crew.server: identity.fingerprint}
            claims = attest_all(session, keys, mine, job_digest=self.digest)
            answer = self._join(session, x)
            result = replace(answer.result, claims=(*answer.result.claims, *claims))
            return replace(answer, result=result)

        return self._in_threads(x, part)

    def forecast(self, shape: tuple[int, ...], *, bound: float | None = None) -> Forecast:
        """Say what an input of this shape will cost: the rows there, the answers back."""
        shape = self._sent_shape(shape)
        return self._forecast(shape, self._out_shape(shape))

    def _sent_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of rows as they are sent: a forest compares numbers of its own."""
        if isinstance(self.model, Forest):
            return (shape[0], int(self.weights["select"].shape[0]))
        return shape

    def _out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        weights = {name: torch.zeros_like(one) for name, one in self.weights.items()}
        zeros = torch.zeros(shape, dtype=torch.float64)
        try:
            return tuple(self._computed(ObliviousOps(), weights, zeros).shape)
        except (RuntimeError, IndexError) as error:  # torch's own words name no layer and no row
            name, first = next(iter(weights.items()))
            raise InputError(
                f"the model takes no rows of shape {shape[1:]}: its first weights, {name!r}, have "
                f"shape {tuple(first.shape)}"
            ) from error

    def _forecast(self, shape: tuple[int, ...], out: tuple[int, ...]) -> Forecast:
        tally, (client, server) = CostTally(), self.crew.owners
        rows, answers = (torch.Size(one).numel() * _WORD_BYTES for one in (shape, out))
        tally.add(
            [(CostedMessage(client, server, rows),), (CostedMessage(server, client, answers),)],
            "online",
        )
        cost = tally.cost()
        timings = tuple(forecast_seconds(cost, rtt_ms=rtt, mbit_per_s=m) for rtt, m in NETWORKS)
        return Forecast(cost=cost, timings=timings, plan_hash=self.digest.hex())

    def lines(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Say what will be done, and what that is worth."""
        return (
            f"rows of shape {shape}, computed in the clear in the process of {self.crew.server}",
            f"{NOTHING}; the enclave proves nothing about its host",
        )

    def leaks(self, shape: tuple[int, ...]) -> tuple[Leak, ...]:
        """Return what will be shown: a simulated enclave hides nothing from its host."""
        shape = self._sent_shape(shape)
        rows, answers = (torch.Size(one).numel() for one in (shape, self._out_shape(shape)))
        return self._shown_leaks(rows, answers)

    def _shown_leaks(self, rows: int, answers: int) -> tuple[Leak, ...]:
        client, server = self.crew.owners
        return (
            Leak(
                to=server,
                what="all rows",
                why="its enclave is simulated, and hides nothing from its host",
                kind="protocol",
                elements=rows,
            ),
            Leak(
                to=client,
                what=f"the {self.reveal}",
                why="the declared result",
                kind="output",
                elements=answers,
            ),
        )

    def told(self, parties: Sequence[str]) -> tuple[Leak, ...]:
        """Return what the client tells before the first row."""
        return INPUT.leaks(self.crew.client, parties)

    def claims(self) -> tuple[Claim, ...]:
        """Return what holds: while the enclave is simulated, nothing."""
        client, server = self.crew.owners
        return (
            Claim(
                subject=f"the rows of {client}, towards {server} and its host",
                guarantee=NOTHING,
                assumptions=(
                    f"every party follows the protocol (semi-honest), the host of {server} too: it "
                    "can read the memory of a simulated enclave",
                    "on hardware: the maker of the processor is trusted, and side channels below "
                    "the order of operations are not covered",
                ),
            ),
            self._claim_of_answers(),
        )

    def trace(self, x: Any) -> list[tuple[str, ...]]:
        """Return the operations that run for an input: the same for every input of its shape."""
        ops = TracedOps(ObliviousOps())
        self._computed(ops, self.weights, self._prepared(x))
        return ops.steps

    def _computed(self, ops: Any, weights: Any, x: Tensor) -> Tensor:
        # Whichever of torch's interpreters it is, the program is the same.
        found: Tensor = self.model(ops, weights, x)
        if self.reveal != "class":
            return found
        check_classes(tuple(found.shape))
        classes: Tensor = ops.argmax(found, dim=-1)
        return classes

    def _exchange(self, session: Session, x: Tensor | None) -> tuple[Tensor | None, Forecast]:
        client, server = self.crew.owners
        shape, _ = share_input_facts(session, client, x, bound=self.bound or 1.0)
        out = self._out_shape(shape)
        rows, answers = torch.Size(shape).numel(), torch.Size(out).numel()
        session.ledger.record(*self._shown_leaks(rows, answers))
        values: Tensor | None = None
        if x is not None and session.me == client:
            session.send(server, "enclave/rows", x.contiguous().view(torch.int64))
            found = session.recv(server, "enclave/answers", out)
            values = found.view(torch.float64)
        else:
            ops = ObliviousOps()
            if (worker := outsource.current()) is not None:  # large products are given to it
                ops = SlalomOps(prg=Prg.from_os(), least_terms=worker.least_terms)
                ops.prepare(self.model, self.weights, shape)
            words = session.recv(client, "enclave/rows", shape)
            with session.progress.stage("compute"), torch.no_grad():
                found = self._computed(ops, self.weights, words.view(torch.float64))
            session.send(client, "enclave/answers", found.contiguous().view(torch.int64))
        return values, self._forecast(shape, out)

    def _notes(self) -> tuple[str, ...]:
        return (f"{NOTHING}; {self.crew.server}'s host can read everything",)


_FRAC_BITS = 20
_ROOM_BITS = 62  # of a product with a sign: a bit is left for rounding


class ObliviousOps(TorchOps):
    """Torch's operations, with reads that touch the same memory whatever is read.

    Guarantee: which operations run, on tensors of which shapes, is the same for all inputs of one
    shape. What a processor does inside one of torch's kernels is not covered.
    Cost: a table is read as a whole for every entry that is looked up.
    """

    def embedding(self, table: Tensor, ids: Tensor, *, padding: int | None = None) -> Tensor:
        """Read rows of a table by a product with one-hot vectors: every row is touched."""
        hot = (ids[..., None] == torch.arange(len(table), dtype=ids.dtype)).to(table.dtype)
        return torch.matmul(hot, table)

    def matmul_whole(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply matrices of whole numbers, as forests do; floats of 64 bits hold them."""
        return torch.matmul(x, y)

    def mul_whole(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply whole numbers."""
        return x * y


@dataclass
class TracedOps:
    """Operations that are written down as they run: their names and the shapes they touch."""

    inner: TorchOps
    steps: list[tuple[str, ...]] = field(default_factory=list)

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """Write the next step down, and do it."""
        call = getattr(self.inner, verb)

        def step(*args: Any, **named: Any) -> Any:
            found = call(*args, **named)
            seen = (*args, *named.values(), found)
            shapes = [str(tuple(x.shape)) if isinstance(x, Tensor) else repr(x) for x in seen]
            self.steps.append((verb, *shapes))
            return found

        return step


@dataclass
class SlalomOps(ObliviousOps):
    """Oblivious operations whose products with weights go to the party's worker.

    Guarantee: the worker sees weights, and left operands under uniform words that are used once:
    nothing of the rows. A wrong answer is used with a probability of at most 2^-40 each. Operands
    are rounded to 20 bits after the point and saturate where a product could leave 64 bits.
    Cost: the pads' products are computed here, before the rows come (`prepare`).
    """

    prg: Prg
    least_terms: int
    # What hides a left operand, once, and what it adds to the product.
    _pads: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    # By its memory a weight, and in fixed point, with what its left operand may be.
    _weights: dict[int, tuple[Tensor, Tensor, Tensor]] = field(default_factory=dict)
    _is_dry: bool = False
    given: int = 0

    def prepare(
        self, model: Callable[..., Any], weights: Mapping[str, Tensor], shape: tuple[int, ...]
    ) -> None:
        """Draw the pads of one run, in the order in which it will use them."""
        self._is_dry = True
        model(self, weights, torch.zeros(shape, dtype=torch.float64))
        self._is_dry = False

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply; a matrix from the right that is large enough is a weight and given away."""
        rows = x.numel() // max(x.shape[-1], 1)
        if y.dim() != 2 or rows * y.numel() < self.least_terms:
            return torch.matmul(x, y)
        flat = x.reshape(-1, x.shape[-1])
        return self._given(flat, y).reshape(*x.shape[:-1], y.shape[1])

    def project(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Multiply by a public matrix."""
        return self.matmul(x, matrix.to(x))

    def conv2d(
        self,
        x: Tensor,
        weight: Tensor,
        *,
        stride: Pair,
        padding: Pair,
        dilation: Pair = (1, 1),
        groups: int = 1,
    ) -> Tensor:
        """Convolve by a product of windows with weights, where there is one group."""
        if groups != 1:
            return functional.conv2d(x, weight, None, stride, padding, dilation, groups)
        size = (int(weight.shape[2]), int(weight.shape[3]))
        windows = functional.unfold(x, size, dilation, padding, stride)
        high = (x.shape[2] + 2 * padding[0] - dilation[0] * (size[0] - 1) - 1) // stride[0] + 1
        found = self.matmul(windows.transpose(1, 2), weight.reshape(len(weight), -1).t())
        return found.transpose(1, 2).reshape(len(x), len(weight), high, -1)

    def _given(self, x: Tensor, y: Tensor) -> Tensor:
        matrix, most = self._weight(y)
        if self._is_dry:
            words = self.prg.words(x.shape)
            self._pads.append((words, ring.matmul(words, matrix)))
            return torch.matmul(x, y)
        # Never twice: two operands under one pad show their difference.
        words, padded = self._pads.pop(0)
        # Saturation: beyond it a product could wrap, and be wrong without a word.
        whole = torch.clamp((x * 2.0**_FRAC_BITS).round(), -most, most)
        hidden = whole.to(torch.int64) + words
        self.given += 1
        product = outsource.matmul(hidden, matrix) - padded
        return product.to(torch.float64) * 2.0 ** (-2 * _FRAC_BITS)

    def _weight(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """Bring a weight to fixed point once; it is found again by its memory."""
        key = y.data_ptr()
        if key not in self._weights:
            matrix = (y * 2.0**_FRAC_BITS).round().to(torch.int64).contiguous()
            heaviest = matrix.abs().double().sum(dim=0).max().clamp(min=1)
            self._weights[key] = (y, matrix, 2.0**_ROOM_BITS / heaviest)
        return self._weights[key][1:]
