"""Make a model private: the same module or function of ops, run between three parties."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from tacit.data.memory import names_of, numbers_of
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.inference.crew import Answer, Crew
from tacit.inference.facts import (
    INPUT,
    LARGEST_ELEMENTS,
    LARGEST_RANK,
    Facts,
    largest,
    share_input_facts,
    share_weight_facts,
    weight_fact,
)
from tacit.inference.forest import Forest
from tacit.mpc import Plan, compute, find_protocol, make_plan, serve
from tacit.mpc.pace import add_computing
from tacit.nn import Imported, quarters_of, size_of
from tacit.nn.capping import note_of, with_room
from tacit.notebook import Rows, Shown
from tacit.party import Meeting, Session, Usage, merge_results, run_threads
from tacit.result import Claim, Forecast, Leak, Result

# A function of ops, weights and input, of any interpreter.
Function = Callable[[Any, Mapping[str, Any], Any], Any]
Reveal = Literal["output", "class"]
CAP = "cap= of tacit.secure (model.cap in a job file)"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Secured(Shown):
    """A private model. Made by `secure`.

    Call it with an input to run all three parties in this process, or `join` a session with it
    to be one of them.
    """

    model: Imported | Forest | Function
    weights: Mapping[str, Tensor]
    protocol: str
    crew: Crew
    reveal: Reveal
    frac_bits: int
    input_bound: float | None
    device: str
    columns: tuple[str, ...] = ()
    """What the model calls its columns, if it does; rows that call them otherwise are refused."""
    features: int | None = None
    """How many columns a row has, if the model is an estimator's."""

    def __call__(self, x: Any) -> Answer:
        """Run the three parties as threads of this process, and return the client's answer.

        Args:
            x: rows, as a tensor, an array, a data frame, or the features of a torch or Hugging
                Face data set.

        Guarantee: none towards this process, which holds everything; what each party sends and
        sees is what it would between hosts.
        """
        x = self._prepared(x)

        def party(session: Session) -> Answer:
            return self._join(session, x if session.me == self.crew.client else None)

        digest = hashlib.sha256(repr((self.protocol, self.crew)).encode()).digest()
        meeting = Meeting(parties=self.crew.parties, job_digest=digest)
        answers = run_threads(dict.fromkeys(self.crew.parties, party), meeting)
        merged = merge_results(tuple(answers[name].result for name in self.crew.parties))
        return replace(answers[self.crew.client], result=replace(merged, launched="threads"))

    def join(self, session: Session, x: Any = None) -> Answer:
        """Take part in one run, as whatever party the session says I am.

        Every party makes its `Secured` from the same module; the weights that count are the
        server's, and the client alone gives an input.

        Guarantee: as stated by the protocol's claims; the output goes to the client alone.
        """
        return self._join(session, None if x is None else self._prepared(x))

    def _prepared(self, x: Any) -> Tensor:
        """Bring rows of every kind to numbers, and give a forest the ones that it compares."""
        names = names_of(x)
        if names and self.columns and names != self.columns:
            raise DataError(
                f"the model was fitted to the columns {', '.join(self.columns)}, in this order; "
                f"got {', '.join(names)}"
            )
        rows = torch.from_numpy(numbers_of(x))
        if self.features is not None and tuple(rows.shape[1:]) != (self.features,):
            raise DataError(
                f"the model wants rows of {self.features} columns, got {tuple(rows.shape)}"
            )
        if isinstance(self.model, Forest):
            rows = self.model.prepare(rows)
        return _checked(rows)

    @property
    def _entries(self) -> int | None:
        """Return how many entries a table has that the input names by whole numbers, if it does."""
        return self.model.entries() if isinstance(self.model, Imported) else None

    def _entered(self, x: Tensor) -> Tensor:
        """Turn names of a table's entries into one-hot vectors: the client does so by itself."""
        entries = self._entries
        if entries is None:
            return x
        if not bool(((x >= 0) & (x < entries) & (x == x.round())).all()):
            raise DataError(
                f"the model reads a table of {entries} entries: wanted whole numbers from 0 to "
                f"{entries - 1}, got others"
            )
        return (x[..., None] == torch.arange(entries, dtype=x.dtype)).to(x.dtype)

    def _join(self, session: Session, x: Tensor | None) -> Answer:
        usage, crew = Usage(), self.crew
        with session.progress.stage("plan"):
            facts = self._agree(session, x)
            fitted, plan = self._fitted(facts)
        mine: dict[str, Tensor] = {}
        if session.me == crew.client and x is not None:
            mine = {"x": self._entered(x)}
        elif session.me == crew.server:
            mine = {_input_name(name): value for name, value in self.weights.items()}
        if session.me in crew.roles.computing:
            program = fitted._program(facts)
            values = compute(session, plan, program, inputs=mine, device=self.device)
        else:
            serve(session, plan, inputs=mine, device=self.device)
            values = None
        return Answer(values=values, plan=plan, result=fitted._report(session, plan, usage))

    def forecast(self, shape: tuple[int, ...], *, input_bound: float | None = None) -> Forecast:
        """Say what an input of this shape will cost, from public facts alone.

        Args:
            shape: of the whole input, rows first.
            input_bound: how large it can be, if the model was made without a bound.
        """
        plan = self.plan(self.facts(shape, input_bound=input_bound))
        return add_computing(plan.forecast(), [(plan, 1)])

    def facts(self, shape: tuple[int, ...], *, input_bound: float | None = None) -> Facts:
        """Return the public facts about an input of this shape, and about the weights."""
        bound = self._known_bound if input_bound is None else input_bound
        if bound is None:
            raise ConfigError("a forecast wants input_bound, how large the input can be")
        bounds = {name: size_of(largest(value)) for name, value in self._sized().items()}
        bounds |= self._agreed_bounds()
        if isinstance(self.model, Forest):
            shape = (shape[0], self.model.weights["select"].shape[0])
        gains = {name: size_of(quarters_of(gain)) for name, gain in self._gains().items()}
        return Facts(shape=shape, input_bound=bound, weight_bounds=bounds, gains=gains)

    def plan(self, facts: Facts) -> Plan:
        """Work out every step and its cost."""
        return self._fitted(facts)[1]

    def _fitted(self, facts: Facts) -> tuple["Secured", Plan]:
        """Plan, with a cap on hidden values where their bounds do not fit the ring without."""
        protocol, imported = find_protocol(self.protocol), self.model

        def attempt(cap: float | None) -> tuple[Secured, Plan]:
            fitted = self
            if isinstance(imported, Imported):
                fitted = replace(self, model=replace(imported, cap=cap))
            program, roles = fitted._program(facts), self.crew.roles
            return fitted, make_plan(program, protocol, roles, frac_bits=self.frac_bits)

        if not isinstance(imported, Imported):
            return attempt(None)
        return with_room(attempt, cap=imported.cap, keyword=CAP)

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

    def _claim_of_answers(self) -> Claim:
        return Claim(
            subject=f"what the answers tell {self.crew.client} about the model",
            guarantee="no guarantee",
            assumptions=(
                "whoever may ask about many inputs of its choice can imitate the model; "
                f"{self.crew.server} should limit the number of questions",
            ),
        )

    def _shown(self) -> tuple[str, Rows]:
        """Say what is computed, by whom, and how exactly; no weight is shown."""
        crew, bound = self.crew, self.input_bound
        dealt = "" if crew.dealer is None else f", {crew.dealer} (dealer)"
        steps: list[tuple[str, ...]] = [("model", getattr(self.model, "__name__", "a function"))]
        if isinstance(self.model, Forest):
            steps = [("model", f"{self.model.trees} trees of depth {self.model.depth}")]
        cap = None
        if isinstance(self.model, Imported):
            steps, cap = self.model.steps(), self.model.cap
        return "Private model", [
            *steps,
            ("parameters", f"{sum(one.numel() for one in self.weights.values()):,}"),
            ("protocol", self.protocol),
            ("parties", f"{crew.client} (data), {crew.server} (model){dealt}"),
            ("reveals", f"the {self.reveal}, to {crew.client}"),
            ("precision", f"{self.frac_bits} fraction bits"),
            ("input bound", "published by the client" if bound is None else f"±{bound:g}"),
            ("cap", "where bounds do not fit without" if cap is None else f"±{cap:g}"),
        ]

    def _agreed_bounds(self) -> Mapping[str, float]:
        """Return the bounds that follow from what a model is, and need not be told."""
        return self.model.bounds if isinstance(self.model, Forest) else {}

    def _sized(self) -> dict[str, Tensor]:
        """Return the weights whose size is told."""
        agreed = self._agreed_bounds()
        return {name: value for name, value in self.weights.items() if name not in agreed}

    def _gains(self) -> Mapping[str, float]:
        return self.model.gains if isinstance(self.model, Imported) else {}

    @property
    def _known_bound(self) -> float | None:
        """Return what is known about the size of the input before it is there."""
        return self.input_bound if self._entries is None else 1.0

    def _agree(self, session: Session, x: Tensor | None) -> Facts:
        if session.me == self.crew.client and x is None:
            raise DataError(f"{session.me!r} is the client and must give an input")
        if x is not None and (words := self._is_too_much(tuple(x.shape))):
            raise DataError(f"the input has {words}; ask about fewer at once")
        shape, bound = share_input_facts(session, self.crew.client, x, bound=self._known_bound)
        if words := self._is_too_much(shape):
            raise DisagreementError(self.crew.client, f"announced an input that has {words}")
        bounds, gains = share_weight_facts(session, self.crew.server, self._sized(), self._gains())
        bounds |= self._agreed_bounds()
        return Facts(shape=shape, input_bound=bound, weight_bounds=bounds, gains=gains)

    def _is_too_much(self, shape: tuple[int, ...]) -> str:
        """Say what is too much of an input that names entries of a table; nothing if all is well.

        One-hot it is as many times larger as the table has entries, at every party.
        """
        names, entries = prod(shape), self._entries
        if entries is None or names * entries <= LARGEST_ELEMENTS:
            return ""
        return f"{names} names of a table of {entries} entries: more than {LARGEST_ELEMENTS} in all"

    def _program(self, facts: Facts) -> Callable[[Any], Tensor | None]:
        model, crew, entries = self.model, self.crew, self._entries
        shape, frac_bits = facts.shape, self.frac_bits
        if isinstance(model, Imported):
            model = replace(model, gains=facts.gains, is_hot=entries is not None)
        if entries is not None:
            shape, frac_bits = (*shape, entries), 0

        def program(ops: Any) -> Tensor | None:  # PlanOps and SecretOps have different tensors
            bound = facts.input_bound
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

    def _report(self, session: Session, plan: Plan, usage: Usage) -> Result:
        crew = self.crew
        roles = {crew.client: "data owner", crew.server: "model owner", crew.dealer: "dealer"}
        role = roles[session.me]
        cap = self.model.cap if isinstance(self.model, Imported) else None
        return Result(
            kind="secure",
            name="private model",
            protocol=self.protocol,
            launched="session",
            parties=(usage.report(name=session.me, role=role, progress=session.progress),),
            forecast=add_computing(plan.forecast(), [(plan, 1)]),
            metered=session.cost(),
            leakage=session.ledger.entries(),
            claims=self.claims(),
            utility=(),
            notes=(*(() if cap is None else (note_of(cap, CAP),)), *plan.notes()),
        )


def _input_name(weight: str) -> str:
    return f"weights/{weight}"


def check_classes(shape: tuple[int, ...]) -> None:
    """Refuse to name a class where there is one output, of which the largest is always the first.

    Raises:
        ConfigError: says so.
    """
    if shape[-1:] == (1,):
        raise ConfigError(
            "the model has one output, so its class would always be 0: take reveal='output', "
            "whose sign tells two classes apart, or give the model an output for each class"
        )


def _checked(x: Tensor) -> Tensor:
    """Look at what everyone will be told of an input."""
    if not 1 <= x.dim() <= LARGEST_RANK or not x.numel():
        raise DataError(f"wanted a tensor of 1 to {LARGEST_RANK} dimensions, got {tuple(x.shape)}")
    if not bool(torch.isfinite(x).all()):
        raise DataError("the input holds NaN or infinite values; clean the data first")
    return x
