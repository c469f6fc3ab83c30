"""Who learns together: all parties as threads of this process, or this process as one of them."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread, main_thread
from types import TracebackType
from typing import Any, Self, TypeVar

from torch import Tensor

from tacit.data.memory import features_and_labels, names_of
from tacit.data.rows import Holding
from tacit.errors import ConfigError, DataError
from tacit.learners.tables import (
    Split,
    Table,
    alike,
    check_together,
    exchange_facts,
    facts_of,
    features_of,
    labels_of,
    stack,
)
from tacit.mpc import Roles, find_protocol
from tacit.mpc.walker import Walker
from tacit.party import Meeting, Progress, Session, merge_costs, run_threads
from tacit.result import Claim, Cost, Leak

R = TypeVar("R")
IDLE_S = 0.5
"""How often a party that waits for work looks whether the program has ended."""
FRAC_BITS = 20
"""Precision of learners: counts over many rows want more digits than the layers of a network."""
Part = tuple[Any, Any] | Any
"""What an owner brings: features, or features and labels; features may be None."""


class Parties(ABC):
    """Owners of data, two of whom compute, and a dealer.

    Every party follows the protocol: that is assumed by every claim.
    """

    def __init__(
        self,
        owners: Sequence[str],
        *,
        dealer: str = "dealer",
        protocol: str = "sealed",
        frac_bits: int = FRAC_BITS,
    ) -> None:
        if len(owners) < 2:
            raise ConfigError(
                f"learning together takes two owners at least, got {len(owners)}: the first two "
                "compute, and one who has no data may be one of them"
            )
        find_protocol(protocol)
        self.owners = tuple(owners)
        self.roles = Roles(owners[0], owners[1], dealer)
        self.names = (*owners, dealer)
        if len(set(self.names)) != len(self.names):
            raise ConfigError(f"parties must have different names, got {', '.join(self.names)}")
        self.protocol = protocol
        self.frac_bits = frac_bits
        self.classes: dict[str, tuple[Any, ...]] = {}
        self._names = 0

    @abstractmethod
    def do(self, work: Callable[[Walker], R]) -> R:
        """Let every party in this process do some work, and return what the first receiver has."""

    @abstractmethod
    def ledger(self) -> tuple[Leak, ...]:
        """Return what was shown to whom so far, as far as this process knows."""

    @abstractmethod
    def cost(self) -> Cost:
        """Return what was metered so far."""

    def claims(self) -> tuple[Claim, ...]:
        """Return what the protocol promises."""
        return find_protocol(self.protocol).claims

    def name(self, word: str) -> str:
        """Return a name that no value has yet; all parties call this in the same order."""
        self._names += 1
        return f"{word} {self._names - 1}"

    def planned(self) -> "Planned":
        """Return stand-ins that go the same way from public facts, and send nothing."""
        found = Planned(
            self.owners,
            dealer=self.roles.dealer,
            protocol=self.protocol,
            frac_bits=self.frac_bits,
        )
        found.classes, found._names = dict(self.classes), self._names
        return found

    def rehearse(self, work: Callable[["Planned"], object]) -> None:
        """Plan some work from where the parties are now, so that it is refused here or not at all.

        Plans name openings by the number of the run that made them: they are used again where
        there has been no run.
        """
        facts, cache, passed, is_planned = self.do(
            lambda one: (one.facts, one.cache, one.passed, one.is_planned)
        )
        if is_planned and not passed:
            return
        planned = self.planned()
        planned.walker.facts.update(facts)
        planned.walker.cache.take_specs(cache)
        work(planned)
        if not passed:
            self.do(lambda walker: walker.plans.update(planned.walker.plans))

    def table(
        self,
        split: Split,
        parts: Mapping[str, Part],
        *,
        classes: Sequence[Any] | None = None,
        is_classification: bool | None = None,
        has_missing: bool = False,
    ) -> Table:
        """Join parts into a table, in whose whole nobody sees.

        Args:
            split: whether owners have different rows, or different columns of the same rows.
                Columns are taken by position; owners of rows whose columns have names are
                refused where these differ, or stand in another order.
            parts: by owner, features, or a pair of features and labels; or a torch or Hugging
                Face data set of both. Where this process is one party, only its own part; every
                party names the same owners by `owners`.
            classes: the public list of classes, if labels are not whole numbers from 0 on.
            is_classification: whether labels are classes; found out if not given, by the owner.
            has_missing: whether features may be NaN; public, and for trees alone.
        """
        wanted = self.owners if not isinstance(self, Connected) else (self.me,)
        strangers = [one for one in parts if one not in wanted]
        if strangers:
            raise ConfigError(
                f"{strangers[0]!r} is no owner here; the owners are {', '.join(self.owners)}"
            )
        pairs = {
            owner: _pair(owner, part, classes, has_missing=has_missing)
            for owner, part in parts.items()
        }
        name = self.name("table")
        counted = None if classes is None else len(classes)
        if is_classification is False:
            counted = 0

        holders = self._holders(parts)
        names = {}
        if split == "rows":  # owners of columns have different ones
            names = {owner: names_of(part) for owner, part in parts.items()}

        def exchange(walker: Walker) -> tuple[Holding, ...]:
            mine = pairs.get(walker.me)
            facts = None if mine is None else facts_of(*mine, counted, names.get(walker.me, ()))
            return exchange_facts(walker.session, holders, facts)

        holdings = self.do(exchange)
        check_together(split, holdings)
        if classes is not None:
            self.classes[name] = tuple(classes)
        return Table(
            name=name,
            split=split,
            holdings=holdings,
            values={o: x for o, (x, _) in pairs.items() if x is not None},
            labels={o: y for o, (_, y) in pairs.items() if y is not None},
            has_missing=has_missing,
        )

    def part_of(self, data: Table, places: Mapping[str, Sequence[int]]) -> Table:
        """Return some rows of a table, by their public places at every owner; tells nobody more.

        Args:
            data: a table that owners gave.
            places: of the rows to take, by owner; owners of columns take the same ones.
        """
        if data.is_shared:
            raise DataError("rows of shares cannot be chosen; take them of the table owners gave")
        if data.split == "both":
            raise DataError("choose rows of the tables before they are put below each other")
        made = data.taking(self.name("part of a table"), places)
        if data.name in self.classes:
            self.classes[made.name] = self.classes[data.name]
        return made

    def rows(self, parts: Mapping[str, Part], **options: Any) -> Table:
        """Join rows of several owners; see `table`."""
        return self.table("rows", parts, **options)

    def columns(self, parts: Mapping[str, Part], **options: Any) -> Table:
        """Join columns that several owners have of the same rows; see `table`."""
        return self.table("columns", parts, **options)

    def stack(self, tables: Sequence[Table]) -> Table:
        """Put tables made by `columns` below each other: rows and columns are both divided.

        Owners may be in several of them; all have the same columns in the same order.
        """
        made = stack(self.name("tables"), tables)
        known = {tuple(self.classes.get(one.name, ())) for one in tables}
        if len(known) > 1:
            raise DataError("tables below each other must name the same classes")
        if classes := known.pop():
            self.classes |= dict.fromkeys([made.name, *(one.name for one in made.tables)], classes)
        return made

    def _holders(self, parts: Mapping[str, Part]) -> tuple[str, ...]:
        return tuple(one for one in self.owners if one in parts)

    def _walker(self, session: Session | None) -> Walker:
        # Thousands of runs are one stage to whoever watches.
        quiet = None if session is None else replace(session, progress=Progress())
        return Walker(self.roles, protocol=self.protocol, frac_bits=self.frac_bits, session=quiet)


class Local(Parties):
    """All parties as threads of this process, for research and tests.

    Guarantee: none towards this process, which holds everything; what each party sends and sees
    is what it would between hosts.
    """

    def __init__(self, *owners: str, **options: Any) -> None:
        super().__init__(owners, **options)
        self._queues: dict[str, SimpleQueue[Any]] = {one: SimpleQueue() for one in self.names}
        self._sessions: dict[str, Session] = {}
        self._failure: BaseException | None = None
        self._pending: list[Future[Any]] = []
        self._thread = Thread(target=self._live, daemon=True, name="tacit-learners")
        self._thread.start()

    def do(self, work: Callable[[Walker], R]) -> R:
        """Let every party do the work; return what the first owner has of it.

        Raises:
            ConfigError: the parties have ended, because of an earlier error or `close`.
        """
        if self._failure is not None or not self._thread.is_alive():
            reason = self._failure or "they were closed"
            raise ConfigError(f"these parties have ended: {reason}; make new ones")
        futures: dict[str, Future[R]] = {one: Future() for one in self.names}
        self._pending = list(futures.values())
        for one, queue in self._queues.items():
            queue.put((work, futures[one]))
        found = [futures[one].result() for one in self.names]
        return next((one for one in found if one), found[0])

    def ledger(self) -> tuple[Leak, ...]:
        """Return what was shown to whom so far."""
        seen: dict[tuple[str, str, str], Leak] = {}
        for leak in (one for s in self._sessions.values() for one in s.ledger.entries()):
            # All parties to a revelation write it down.
            known = seen.setdefault((leak.to, leak.what, leak.why), leak)
            if known.elements < leak.elements:
                seen[leak.to, leak.what, leak.why] = leak
        return tuple(seen.values())

    def cost(self) -> Cost:
        """Return what was metered so far, of all parties."""
        return merge_costs({name: one.cost() for name, one in self._sessions.items()})

    def close(self) -> None:
        """Let the parties end."""
        for queue in self._queues.values():
            queue.put(None)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _live(self) -> None:
        text = repr((self.protocol, self.names, self.frac_bits))
        digest = hashlib.sha256(text.encode()).digest()
        meeting = Meeting(parties=self.names, job_digest=digest)
        try:
            run_threads(dict.fromkeys(self.names, self._party), meeting)
        except BaseException as error:
            self._failure = error
            for future in self._pending:
                if not future.done():
                    future.set_exception(error)

    def _party(self, session: Session) -> None:
        self._sessions[session.me] = session
        walker = self._walker(session)
        while (item := self._next(session.me)) is not None:
            work, future = item
            future.set_result(work(walker))

    def _next(self, me: str) -> Any:
        """Wait for work; end with the program, should it forget to close."""
        while main_thread().is_alive():
            try:
                return self._queues[me].get(timeout=IDLE_S)
            except Empty:
                continue
        return None


class Connected(Parties):
    """This process as one party of a session with the others, who run the same program."""

    def __init__(self, session: Session, *, owners: Sequence[str], **options: Any) -> None:
        super().__init__(owners, **options)
        if set(self.names) != set(session.parties):
            raise ConfigError(
                f"the session has the parties {', '.join(session.parties)}, but the owners and "
                f"the dealer are {', '.join(self.names)}"
            )
        self.me = session.me
        self._session = session
        self.walker = self._walker(session)

    def do(self, work: Callable[[Walker], R]) -> R:
        """Do my part."""
        return work(self.walker)

    def ledger(self) -> tuple[Leak, ...]:
        """Return what I know to have been shown."""
        return self._session.ledger.entries()

    def cost(self) -> Cost:
        """Return what I have metered."""
        return self._session.cost()

    def _holders(self, parts: Mapping[str, Part]) -> tuple[str, ...]:
        return self.owners


class Planned(Parties):
    """Stand-ins for all parties: what they would do is planned, and nothing is sent or opened."""

    def __init__(self, owners: Sequence[str], **options: Any) -> None:
        super().__init__(owners, **options)
        self.walker = self._walker(None)

    def do(self, work: Callable[[Walker], R]) -> R:
        """Plan the work; whatever would be opened is missing."""
        return work(self.walker)

    def rehearse(self, work: Callable[["Planned"], object]) -> None:
        """Do nothing: this is the rehearsal."""

    def table(self, split: Split, parts: Mapping[str, Part], **options: Any) -> Table:
        """Refuse: a plan has no parts; it takes tables of parties, or a `planned_table`."""
        raise ConfigError("stand-ins have no data; plan with a table that parties have made")

    def planned_table(self, split: Split, holdings: Sequence[Holding]) -> Table:
        """Return a table known by its public facts alone."""
        check_together(split, holdings)
        return Table(
            name=self.name("table"),
            split=split,
            holdings=alike(holdings),
            values={},
            labels={},
        )

    def ledger(self) -> tuple[Leak, ...]:
        """Return what would be shown to whom."""
        return self.walker.leaks()

    def cost(self) -> Cost:
        """Return what would be sent."""
        return self.walker.forecast().cost


def _pair(
    owner: str, part: Part, classes: Sequence[Any] | None, *, has_missing: bool
) -> tuple[Tensor | None, Tensor | None]:
    x, y = features_and_labels(part)
    features = None if x is None else features_of(owner, x, has_missing=has_missing)
    labels = None if y is None else labels_of(owner, y, classes)
    if features is None and labels is None:
        raise DataError(f"{owner!r} gave neither features nor labels")
    if features is not None and labels is not None and len(features) != len(labels):
        raise DataError(f"{owner!r} gave {len(features)} rows and {len(labels)} labels")
    return features, labels
