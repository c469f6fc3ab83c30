"""A private model on secret shares: the same module or function of ops, run between its parties."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, final

import torch
from torch import Tensor

from tacit.errors import DataError, DisagreementError
from tacit.inference.answers import PrivateAnswer
from tacit.inference.facts import (
    INPUT,
    LARGEST_ELEMENTS,
    PublicFacts,
    share_input_facts,
    share_weight_facts,
    weight_fact,
)
from tacit.inference.secured import Secured, check_classes
from tacit.mpc import Plan, find_protocol
from tacit.mpc.walker import Walker
from tacit.nn import Imported
from tacit.nn.capping import note_of, with_room
from tacit.notebook import Lines
from tacit.party import Session, Usage
from tacit.result import Claim, Forecast, Leak

CAP = "cap= of tacit.secure (model.cap in a job file)"


@final
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SecuredOnShares(Secured):
    """A private model under a protocol of `tacit.mpc`. Made by `secure`."""

    def __call__(self, x: Any) -> PrivateAnswer:
        """Run the parties as threads of this process, and return the client's answer."""
        return self._in_threads(x, self._join)

    def forecast(self, shape: tuple[int, ...], *, bound: float | None = None) -> Forecast:
        """Say what an input of this shape will cost, from public facts alone."""
        walker = self._walker()
        plan, program = self._fitted(self.facts(shape, bound=bound), walker)[1:]
        walker.execute(plan, program)
        return walker.forecast()

    def plan(self, facts: PublicFacts) -> Plan:
        """Work out every step and its cost."""
        return self._fitted(facts, self._walker())[1]

    def told(self, parties: Sequence[str]) -> tuple[Leak, ...]:
        """Return what both sides tell all parties of a session before the first row."""
        weights = weight_fact(len(self._sized()) + len(self._gains()))
        return (
            *INPUT.leaks(self.crew.client, parties),
            *(weights.leaks(self.crew.server, parties) if weights.count else ()),
        )

    def claims(self) -> tuple[Claim, ...]:
        """Return what the protocol promises, and what no protocol can."""
        return (*find_protocol(self.protocol).claims, self._claim_of_answers())

    def _join(self, session: Session, x: Tensor | None) -> PrivateAnswer:
        usage, crew, walker = Usage(), self.crew, self._walker(session)
        with session.progress.stage("plan"):
            fitted, plan, program = self._fitted(self._agree(session, x), walker)
        mine: dict[str, Tensor] = {}
        if session.me == crew.client and x is not None:
            mine = {"x": self._one_hot(x)}
        elif session.me == crew.server:
            mine = {_input_name(name): value for name, value in self.weights.items()}
        _, opened = walker.execute(plan, program, inputs=mine)
        cap = fitted.model.cap if isinstance(fitted.model, Imported) else None
        return self._answer(
            session,
            usage,
            opened[0] if opened else None,
            forecast=walker.forecast(),
            plan=plan,
            notes=(*(() if cap is None else (note_of(cap, CAP),)), *plan.notes()),
        )

    def _agree(self, session: Session, x: Tensor | None) -> PublicFacts:
        """Tell and learn what must be known before a run is planned."""
        if session.me == self.crew.client and x is None:
            raise DataError(f"{session.me!r} is the client and must give an input")
        if x is not None and (words := self._is_too_much(tuple(x.shape))):
            raise DataError(f"the input has {words}; ask about fewer at once")
        shape, bound = share_input_facts(session, self.crew.client, x, bound=self._known_bound)
        if words := self._is_too_much(shape):
            raise DisagreementError(self.crew.client, f"announced an input that has {words}")
        bounds, gains = share_weight_facts(session, self.crew.server, self._sized(), self._gains())
        bounds |= self._agreed_bounds()
        return PublicFacts(shape=shape, bound=bound, weight_bounds=bounds, gains=gains)

    def _is_too_much(self, shape: tuple[int, ...]) -> str:
        """Say what is too much of an input that names entries of a table; nothing if all is well.

        One-hot it is as many times larger as the table has entries, at every party.
        """
        names, entries = prod(shape), self._entries
        if entries is None or names * entries <= LARGEST_ELEMENTS:
            return ""
        return f"{names} names of a table of {entries} entries: more than {LARGEST_ELEMENTS} in all"

    def _one_hot(self, x: Tensor) -> Tensor:
        """Turn names of a table's entries into one-hot vectors, if the input is such names.

        The client does so by itself: on shares, a name would cost a comparison with every entry.
        """
        entries = self._entries
        if entries is None:
            return x
        if not bool(((x >= 0) & (x < entries) & (x == x.round())).all()):
            raise DataError(
                f"the model reads a table of {entries} entries: wanted whole numbers from 0 to "
                f"{entries - 1}, got others"
            )
        return (x[..., None] == torch.arange(entries, dtype=x.dtype)).to(x.dtype)

    def _walker(self, session: Session | None = None) -> Walker:
        return Walker(
            self.crew.roles,
            protocol=self.protocol,
            frac_bits=self.frac_bits,
            session=session,
            device=self.device,
        )

    def _fitted(
        self, facts: PublicFacts, walker: Walker
    ) -> tuple["SecuredOnShares", Plan, Callable[[Any], Tensor | None]]:
        """Plan, with a cap on hidden values where their bounds do not fit the ring without."""
        imported = self.model

        def attempt(
            cap: float | None,
        ) -> tuple[SecuredOnShares, Plan, Callable[[Any], Tensor | None]]:
            fitted = self
            if isinstance(imported, Imported):
                fitted = replace(self, model=replace(imported, cap=cap))
            program = fitted._program(facts)
            return fitted, walker.plan(program, key=cap), program

        if not isinstance(imported, Imported):
            return attempt(None)
        return with_room(attempt, cap=imported.cap, keyword=CAP)

    def _program(self, facts: PublicFacts) -> Callable[[Any], Tensor | None]:
        """Return what is run: the inputs of both owners, the model, and who gets the answer."""
        model, crew, entries = self.model, self.crew, self._entries
        shape, frac_bits = facts.shape, self.frac_bits
        if isinstance(model, Imported):
            model = replace(model, gains=facts.gains, is_hot=entries is not None)
        if entries is not None:
            shape, frac_bits = (*shape, entries), 0  # zeros and ones: nothing is rounded behind

        def program(ops: Any) -> Tensor | None:  # PlanOps and SecretOps have different tensors
            bound = facts.bound
            x = ops.input("x", owner=crew.client, shape=shape, bound=bound, frac_bits=frac_bits)
            weights = {
                name: ops.input(
                    _input_name(name),
                    owner=crew.server,
                    shape=tuple(value.shape),
                    bound=facts.weight_bounds[name],
                )
                for name, value in self.weights.items()
            }
            # Matrices are opened under their masks before the query, once for all their uses.
            ops.cache_openings(
                *(weights[name] for name, one in self.weights.items() if one.dim() > 1)
            )
            answer = model(ops, weights, x)
            if self.reveal == "class":
                check_classes(ops.shape(answer))
                answer = ops.argmax(answer, dim=-1)
            opened: Tensor | None = ops.open(
                answer, to=(crew.client,), what=f"the {self.reveal}", why="the declared result"
            )
            return opened

        return program

    def _shown(self) -> tuple[str, Lines]:
        return "Private model", self._rows()


def _input_name(weight: str) -> str:
    return f"weights/{weight}"
