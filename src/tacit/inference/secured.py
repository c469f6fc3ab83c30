"""A private model: who takes part, what a run gives, and what all ways of running one share."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from tacit.data.memory import names_of, numbers_of
from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.inference.answers import PrivateAnswer, claim_of_answers, result_of
from tacit.inference.forest import Forest
from tacit.mpc import Plan, Roles
from tacit.nn import Imported, quarters_of, size_of
from tacit.notebook import Lines, Shown
from tacit.party import Fact, Meeting, Session, Usage, merge_results, run_threads
from tacit.result import Claim, Forecast, Leak

LARGEST_RANK = 8
LARGEST_ELEMENTS = 1 << 27
"""A GiB of words: a party must not make the others allocate what it merely announced."""
_LARGEST_QUARTERS = 4 * 48  # 2^48 with 16 fraction bits fills the 64 bits of a word


@dataclass(frozen=True, kw_only=True)
class PublicFacts:
    """What everyone knows when a run is planned.

    Attributes:
        shape: of the input.
        bound: how large the input can be.
        weight_bounds: by weight, how large it can be.
        gains: by weight, how much larger than its input a product with it can be.
    """

    shape: tuple[int, ...]
    bound: float
    weight_bounds: Mapping[str, float]
    gains: Mapping[str, float]


def largest(values: Tensor) -> int:
    """Return the size of a tensor in quarter octaves, rounded up.

    A size is told to everyone, so it is told coarsely: a step is a factor of 2^(1/4), which costs
    every bound at most a quarter of a bit of the ring.
    """
    return quarters_of(float(values.abs().max()) if values.numel() else 0.0)


INPUT = Fact(
    tag="input-facts",
    count=2 + LARGEST_RANK,
    what="the shape and size of the input",
    elements=2,
)


def weight_fact(count: int) -> Fact:
    """Return what the owner of a model tells of so many weights and products."""
    return Fact(
        tag="weight-facts",
        count=count,
        what="how large each weight can be and how much longer it makes a row, to a quarter of an "
        "octave",
    )


def share_input_facts(
    session: Session, owner: str, x: Tensor | None, *, bound: float | None
) -> tuple[tuple[int, ...], float]:
    """Tell or learn the shape of the input, and how large it is unless that was agreed."""
    if x is not None and session.me == owner:
        shape = tuple(x.shape)
        quarters = 0 if bound is not None else largest(x)
        if quarters > _LARGEST_QUARTERS:
            raise DataError(
                f"the input has values beyond ±{size_of(_LARGEST_QUARTERS):.3g}, which no ring of "
                "64 bits holds; divide the columns first"
            )
        padded = shape + (0,) * (LARGEST_RANK - len(shape))
        session.publish(INPUT, (len(shape), quarters, *padded))
    else:
        rank, quarters, *sides = session.learn(owner, INPUT)
        shape = tuple(sides[: max(rank, 0)])
        if not 1 <= rank <= LARGEST_RANK or min(shape) < 1 or prod(shape) > LARGEST_ELEMENTS:
            raise DisagreementError(owner, f"announced an impossible shape: rank {rank}, {shape}")
    _check_sizes(owner, (quarters,))
    return shape, size_of(quarters) if bound is None else bound


def share_weight_facts(
    session: Session,
    owner: str,
    weights: Mapping[str, Tensor],
    gains: Mapping[str, float],
) -> tuple[dict[str, float], dict[str, float]]:
    """Tell or learn how large the weights are; every party knows their names and shapes."""
    fact = weight_fact(len(weights) + len(gains))
    if not fact.count:
        return {}, {}
    if session.me == owner:
        sizes = tuple(largest(value) for value in weights.values())
        sizes += tuple(quarters_of(gain) for gain in gains.values())
        session.publish(fact, sizes)
    else:
        sizes = session.learn(owner, fact)
    _check_sizes(owner, sizes)
    found = [size_of(quarters) for quarters in sizes]
    bounds = dict(zip(weights, found[: len(weights)], strict=True))
    return bounds, dict(zip(gains, found[len(weights) :], strict=True))


def _check_sizes(owner: str, quarters: tuple[int, ...]) -> None:
    if any(abs(one) > _LARGEST_QUARTERS for one in quarters):
        raise DisagreementError(owner, "announced sizes that no ring of 64 bits can hold")


# A function of ops, weights and input, of any interpreter.
Function = Callable[[Any, Mapping[str, Any], Any], Any]
Reveal = Literal["output", "class"]
DIRECT = ("he", "enclave")
"""Protocols between the two owners alone: nothing is shared, and nobody deals."""


@dataclass(frozen=True, kw_only=True)
class Crew:
    """Who takes part: the owner of the data, the owner of the model, and the dealer.

    Protocols between the two owners alone have no dealer, whatever is named. The data owner is
    the second computing party: under `permuted2` that is the one who sees permuted values, so
    that what is at risk is the model and never the data.
    """

    client: str = "client"
    server: str = "server"
    dealer: str | None = "dealer"

    def __post_init__(self) -> None:
        _ = self.roles  # refuses two parties of one name

    @property
    def owners(self) -> tuple[str, str]:
        """Return the owners of the data and of the model."""
        return self.client, self.server

    @property
    def parties(self) -> tuple[str, ...]:
        """Return all of them."""
        return self.owners if self.dealer is None else (*self.owners, self.dealer)

    @property
    def roles(self) -> Roles:
        """Return who computes as what."""
        return Roles(self.server, self.client, self.dealer or "")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Secured(Shown, ABC):
    """A private model. Made by `secure`.

    Call it with an input to run all parties in this process, or `join` a session with it
    to be one of them.
    """

    model: Imported | Forest | Function
    weights: Mapping[str, Tensor]
    protocol: str
    crew: Crew
    reveal: Reveal
    frac_bits: int
    bound: float | None
    device: str
    columns: tuple[str, ...] = ()
    """What the model calls its columns, if it does; rows that call them otherwise are refused."""
    features: int | None = None
    """How many columns a row has, if the model is an estimator's."""

    @abstractmethod
    def __call__(self, x: Any) -> PrivateAnswer:
        """Run all parties as threads of this process, and return the client's answer.

        Args:
            x: rows, as a tensor, an array, a data frame, or the features of a torch or Hugging
                Face data set.

        Guarantee: none towards this process, which holds everything; what each party sends and
        sees is what it would between hosts.
        """

    def join(self, session: Session, x: Any = None) -> PrivateAnswer:
        """Take part in one run, as whatever party the session says I am.

        Every party makes its `Secured` from the same module; the weights that count are the
        server's, and the client alone gives an input.

        Guarantee: as stated by the protocol's claims; the output goes to the client alone.
        """
        return self._join(session, None if x is None else self._prepared(x))

    @abstractmethod
    def forecast(self, shape: tuple[int, ...], *, bound: float | None = None) -> Forecast:
        """Say what an input of this shape will cost, from public facts alone.

        Args:
            shape: of the whole input, rows first.
            bound: how large it can be, if the model was made without a bound.
        """

    def facts(self, shape: tuple[int, ...], *, bound: float | None = None) -> PublicFacts:
        """Return the public facts about an input of this shape, and about the weights."""
        bound = known_bound(bound, self._known_bound)
        bounds = {name: size_of(largest(value)) for name, value in self._sized().items()}
        bounds |= self._agreed_bounds()
        if isinstance(self.model, Forest):
            shape = (shape[0], self.model.weights["select"].shape[0])
        gains = {name: size_of(quarters_of(gain)) for name, gain in self._gains().items()}
        return PublicFacts(shape=shape, bound=bound, weight_bounds=bounds, gains=gains)

    @abstractmethod
    def plan(self, facts: PublicFacts) -> Plan:
        """Work out every step and its cost."""

    @abstractmethod
    def told(self, parties: Sequence[str]) -> tuple[Leak, ...]:
        """Return what both sides tell all parties of a session before the first row."""

    @abstractmethod
    def claims(self) -> tuple[Claim, ...]:
        """Return what the protocol promises, and what no protocol can."""

    @property
    def digest(self) -> bytes:
        """Return a hash of what is run: the protocol, the parties, the model but its weights."""
        graph = getattr(self.model, "graph", "a function")
        shapes = {name: tuple(one.shape) for name, one in self.weights.items()}
        bits = self.frac_bits or None
        text = repr((self.protocol, self.crew.owners, str(graph), shapes, self.reveal, bits))
        return hashlib.sha256(text.encode()).digest()

    @abstractmethod
    def _join(self, session: Session, x: Tensor | None) -> PrivateAnswer:
        """Do one party's part, with rows that are prepared."""

    def _in_threads(
        self, x: Any, part: Callable[[Session, Tensor | None], PrivateAnswer]
    ) -> PrivateAnswer:
        """Run everyone's part, and return the client's answer with what all say of the run."""
        x, names = self._prepared(x), self.crew.parties

        def party(session: Session) -> PrivateAnswer:
            return part(session, x if session.me == self.crew.client else None)

        meeting = Meeting(parties=names, job_digest=self.digest)
        answers = run_threads(dict.fromkeys(names, party), meeting)
        merged = merge_results(tuple(answers[name].result for name in names))
        return replace(answers[self.crew.client], result=replace(merged, launched="threads"))

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
        if not 1 <= rows.dim() <= LARGEST_RANK or not rows.numel():
            raise DataError(
                f"wanted a tensor of 1 to {LARGEST_RANK} dimensions, got {tuple(rows.shape)}"
            )
        if not bool(torch.isfinite(rows).all()):
            raise DataError("the input holds NaN or infinite values; clean the data first")
        return rows

    def _answer(
        self,
        session: Session,
        usage: Usage,
        values: Tensor | None,
        *,
        forecast: Forecast,
        plan: Plan | None = None,
        notes: tuple[str, ...] = (),
    ) -> PrivateAnswer:
        """Write down one party's view of a run."""
        crew = self.crew
        roles = {crew.client: "data owner", crew.server: "model owner", crew.dealer: "dealer"}
        result = result_of(
            session,
            usage,
            kind="secure",
            name="private model",
            protocol=self.protocol,
            role=roles[session.me],
            forecast=forecast,
            claims=self.claims(),
            notes=notes,
        )
        return PrivateAnswer(values=values, plan=plan, result=result)

    def _claim_of_answers(self) -> Claim:
        reason = (
            "whoever may ask about many inputs of its choice can imitate the model; "
            f"{self.crew.server} should limit the number of questions"
        )
        return claim_of_answers(self.crew.client, reason)

    def _rows(self) -> list[tuple[str, ...]]:
        """Say what is computed, by whom, and how exactly; no weight is shown."""
        crew, bound = self.crew, self.bound
        dealt = "" if crew.dealer is None else f", {crew.dealer} (dealer)"
        steps: list[tuple[str, ...]] = [("model", getattr(self.model, "__name__", "a function"))]
        if isinstance(self.model, Forest):
            steps = [("model", f"{self.model.trees} trees of depth {self.model.depth}")]
        cap = None
        if isinstance(self.model, Imported):
            steps, cap = self.model.steps(), self.model.cap
        return [
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
    def _entries(self) -> int | None:
        """Return how many entries a table has that the input names by whole numbers, if it does."""
        return self.model.entries() if isinstance(self.model, Imported) else None

    @property
    def _known_bound(self) -> float | None:
        """Return what is known about the size of the input before it is there."""
        return self.bound if self._entries is None else 1.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Direct(Secured):
    """A private model of two parties, without shares: the client asks, the server computes."""

    @abstractmethod
    def lines(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Say in a few sentences what will be done with rows of this shape."""

    @abstractmethod
    def leaks(self, shape: tuple[int, ...]) -> tuple[Leak, ...]:
        """Return what will be shown to whom, for rows of this shape."""

    def plan(self, facts: PublicFacts) -> Plan:
        """Refuse: there are no steps on shares."""
        raise ConfigError(f"protocol {self.protocol!r} has no plan on shares; ask for a forecast")

    @abstractmethod
    def _exchange(self, session: Session, x: Tensor | None) -> tuple[Tensor | None, Forecast]:
        """Do one party's part; the client gets the output."""

    @abstractmethod
    def _notes(self) -> tuple[str, ...]:
        """Say what a reader of the report must not miss."""

    def _join(self, session: Session, x: Tensor | None) -> PrivateAnswer:
        usage = Usage()
        if set(session.parties) != set(self.crew.owners):
            raise ConfigError(
                f"protocol {self.protocol!r} is between {' and '.join(self.crew.owners)} alone, "
                f"got the parties {', '.join(session.parties)}"
            )
        if session.me == self.crew.client and x is None:
            raise DataError(f"{session.me!r} is the client and must give an input")
        values, forecast = self._exchange(session, x)
        return self._answer(session, usage, values, forecast=forecast, notes=self._notes())

    def _shown(self) -> tuple[str, Lines]:
        absent = {"precision", "cap"}  # floats inside an enclave; bits of BFV are in the plan
        return "Private model", [row for row in self._rows() if row[0] not in absent]


def known_bound(*given: float | None) -> float:
    """Return the first bound of the input that is given, or refuse to forecast without one."""
    for bound in given:
        if bound is not None:
            return bound
    raise ConfigError("a forecast wants bound, how large the input can be")


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
