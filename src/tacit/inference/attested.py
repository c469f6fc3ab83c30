"""`protocol="enclave"`: plain computation in a process that proves what it runs."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from tacit.crypto import Identity, make_identity
from tacit.errors import InputError
from tacit.inference.answers import PrivateAnswer
from tacit.inference.facts import INPUT, share_input_facts
from tacit.inference.forest import Forest
from tacit.inference.secured import Direct, check_classes
from tacit.inference.slalom import ObliviousOps, SlalomOps, TracedOps
from tacit.mpc import outsource
from tacit.mpc.plan import NETWORKS
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
