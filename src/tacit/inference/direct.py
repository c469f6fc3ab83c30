"""Private models between the two owners alone: without shares and without a dealer."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.inference.crew import Answer
from tacit.inference.facts import INPUT, Facts
from tacit.inference.secured import Secured
from tacit.mpc import Plan
from tacit.notebook import Rows
from tacit.party import Meeting, Session, Usage, merge_results, run_threads
from tacit.result import Forecast, Leak, Result


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Direct(Secured):
    """A private model of two parties: the client asks, the server computes."""

    @property
    def bits(self) -> int | None:
        """Return the bits that were asked for, if any were."""
        return self.frac_bits or None

    @property
    def digest(self) -> bytes:
        """Return a hash of what is run: the protocol, the parties, the model but its weights."""
        graph = getattr(self.model, "graph", "a function")
        shapes = {name: tuple(one.shape) for name, one in self.weights.items()}
        text = repr((self.protocol, self.crew.owners, str(graph), shapes, self.reveal, self.bits))
        return hashlib.sha256(text.encode()).digest()

    def __call__(self, x: Any) -> Answer:
        """Run both parties as threads of this process, and return the client's answer.

        Guarantee: none towards this process, which holds everything.
        """
        x, names = self._prepared(x), self.crew.owners

        def party(session: Session) -> Answer:
            return self._join(session, x if session.me == self.crew.client else None)

        meeting = Meeting(parties=names, job_digest=self.digest)
        return self._merged(run_threads(dict.fromkeys(names, party), meeting))

    def _merged(self, answers: Mapping[str, Answer]) -> Answer:
        """Return the client's answer, with what both parties say of the run."""
        merged = merge_results(tuple(answers[name].result for name in self.crew.owners))
        return replace(answers[self.crew.client], result=replace(merged, launched="threads"))

    def _join(self, session: Session, x: Tensor | None) -> Answer:
        usage = Usage()
        if set(session.parties) != set(self.crew.owners):
            raise ConfigError(
                f"protocol {self.protocol!r} is between {' and '.join(self.crew.owners)} alone, "
                f"got the parties {', '.join(session.parties)}"
            )
        if session.me == self.crew.client and x is None:
            raise DataError(f"{session.me!r} is the client and must give an input")
        values, forecast = self._exchange(session, x)
        role = "data owner" if session.me == self.crew.client else "model owner"
        result = Result(
            kind="secure",
            name="private model",
            protocol=self.protocol,
            launched="session",
            parties=(usage.report(name=session.me, role=role, progress=session.progress),),
            forecast=forecast,
            metered=session.cost(),
            leakage=session.ledger.entries(),
            claims=self.claims(),
            utility=(),
            notes=self._notes(),
        )
        return Answer(values=values, plan=None, result=result)

    @abstractmethod
    def _exchange(self, session: Session, x: Tensor | None) -> tuple[Tensor | None, Forecast]:
        """Do one party's part; the client gets the output."""

    @abstractmethod
    def lines(self, shape: tuple[int, ...]) -> tuple[str, ...]:
        """Say in a few sentences what will be done with rows of this shape."""

    @abstractmethod
    def leaks(self, shape: tuple[int, ...]) -> tuple[Leak, ...]:
        """Return what will be shown to whom, for rows of this shape."""

    def told(self, parties: Sequence[str]) -> tuple[Leak, ...]:
        """Return what both sides tell before the first row."""
        return INPUT.leaks(self.crew.client, parties)

    def _notes(self) -> tuple[str, ...]:
        return ()

    def plan(self, facts: Facts) -> Plan:
        """Refuse: there are no steps on shares."""
        raise ConfigError(f"protocol {self.protocol!r} has no plan on shares; ask for a forecast")

    def _bound(self, given: float | None) -> float:
        bound = self.input_bound if given is None else given
        if bound is None:
            raise ConfigError("a forecast wants input_bound, how large the input can be")
        return bound

    def _shown(self) -> tuple[str, Rows]:
        """Say what is computed and by whom; no weight is shown."""
        title, rows = super()._shown()
        hidden = {"parties", "precision", "cap"}
        crew = self.crew
        return title, [
            *(one for one in rows if one[0] not in hidden),
            ("parties", f"{crew.client} (data), {crew.server} (model)"),
        ]
