"""The servers and the dealer of a prediction service: one batch after the other."""

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from tacit.errors import FrameError, PartyError
from tacit.inference.service.bounds import check_plan, check_weights, clip_plan, clip_rows
from tacit.inference.service.queue import (
    ANSWER_S,
    MOST_ITEMS,
    Order,
    PendingQuestion,
    RequestQueue,
    Ticket,
)
from tacit.inference.service.task import ServiceTask
from tacit.mpc import OpeningCache, Plan, SecretOps, Share, compute, serve
from tacit.mpc.share import Spec
from tacit.party import Fact, Ledger, Progress, Session

R = TypeVar("R")

_GLANCE_S = 0.2  # how long the stop of a service waits for a batch at most
QUESTION = Fact(
    tag="ready/share",
    count=1,
    what="when {owner} asks, and about how many rows",
    why="questions are answered together",
)
BATCH = Fact(
    tag="batch/size",
    count=1,
    what="when questions are answered, and to how many rows they were filled up",
    why="it deals for as many",
)
_END = -1  # in the place of a number of rows


@dataclass(eq=False)
class ServiceTally:
    """What a server or dealer has done so far; its size does not grow with the number of runs.

    ``runs`` has a plan for every size of a batch, and under 0 that of holding the weights;
    ``guards`` those that clip a batch, and under 0 the one that checked the weights.
    """

    questions: int = 0
    rows: int = 0
    runs: dict[int, tuple[Plan, int]] = field(default_factory=dict)
    guards: dict[int, tuple[Plan, int]] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)

    def count_run(self, rows: int, plan: Plan) -> int:
        """Note a run of a plan; return how many runs there were before."""
        turn = sum(times for _, times in self.runs.values())
        _, times = self.runs.get(rows, (plan, 0))
        self.runs[rows] = (plan, times + 1)
        return turn

    def count_guard(self, rows: int, plan: Plan) -> None:
        """Note a check of the weights, or a clipping."""
        _, times = self.guards.get(rows, (plan, 0))
        self.guards[rows] = (plan, times + 1)


class PredictionServer:
    """One of the two servers: it holds a share of the model, and answers clients with shares.

    Links of clients are handed to `queue.admit`, from any thread; `run` works until the service is
    stopped. The first server decides in which order questions are answered, and tells the others.

    Guarantee: that of the protocol. A client's rows come as two shares, one for each server, and
    each share alone is uniform; shares of answers leave under a fresh common mask, so that both
    together say no more than the answer. The dealer learns how many rows a batch was filled up to.
    """

    def __init__(
        self,
        session: Session,
        task: ServiceTask,
        share: Mapping[str, Tensor],
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        task.refuse_view()
        self._session = session
        self._task = task
        self._share = share
        self._weights = task.share_of(share)
        self._plans = BatchPlans(task)
        self._order = Order()
        self.tally = ServiceTally()
        self.queue = RequestQueue(task, report=self._reported, answer_s=answer_s)

    @property
    def _is_first(self) -> bool:
        return self._session.me == self._task.roles.first

    @property
    def _other(self) -> str:
        roles = self._task.roles
        return roles.second if self._is_first else roles.first

    def run(self, stop: threading.Event) -> ServiceTally:
        """Answer until the first server is stopped, or somebody fails; returns what was done."""
        try:
            self._prepare()
            if self._is_first:
                self._lead(stop)
            else:
                self._follow()
        finally:
            self.queue.close()
        return self.tally

    def _prepare(self) -> None:
        """Agree on everything, check the weights, and open them under masks."""
        self._session.agree("service", self._task.digest())
        _check(self._session, self._task, self._share, self.tally)
        # Masks of another service of this session must not come again.
        self._number = self._session.begin_run()
        self._plans.fill(first_run=self._number + 1)
        self._session.agree("plans", self._plans.digest())
        self._run(0, self._task.cache_weights, {})
        self.tally.count_run(0, self._plans.get(0))

    def _reported(self, ticket: Ticket, rows: int) -> None:
        """Note a share of mine: the first server keeps the list, the second tells it."""
        client = self._task.clients[ticket.client]
        self.tally.ledger.record(*QUESTION.leaks(client, self._task.roles.computing))
        if self._is_first:
            self._order.report(ticket, rows)
        else:
            facts = torch.tensor((ticket.client, ticket.visit, ticket.number, rows))
            self._session.send(self._other, "ready/share", facts, phase="setup")

    def _lead(self, stop: threading.Event) -> None:
        hearing = threading.Thread(target=self._hear, name="tacit-service", daemon=True)
        hearing.start()
        while not stop.is_set():
            items = self._order.take(self._task.most_rows, wait_s=_GLANCE_S)
            if items:
                self._announce(items)
                self._work(items)
        _tell(self._session, self._other, _END)
        _tell(self._session, self._task.roles.dealer, _END)

    def _hear(self) -> None:
        """Hear from the second server which shares it has."""
        clients = len(self._task.clients)
        try:
            while True:
                client, visit, number, rows = self._session.recv(
                    self._other, "ready/share", (4,)
                ).tolist()
                if not 0 <= client < clients:
                    raise FrameError(self._other, f"it reported a question of client {client}")
                self._order.report(Ticket(client, visit, number), rows)
        except PartyError as error:
            self._order.fail(error)

    def _announce(self, items: list[PendingQuestion]) -> None:
        facts = [(one.client, one.visit, one.number, rows) for one, rows in items]
        _tell(self._session, self._other, len(facts))
        self._session.send(self._other, "batch/items", torch.tensor(facts), phase="setup")
        rows = sum(rows for _, rows in items)
        if rows:
            _tell(self._session, self._task.roles.dealer, self._task.padded(rows))
            self.tally.ledger.record(*BATCH.leaks(self._session.me, (self._task.roles.dealer,)))

    def _follow(self) -> None:
        first, most = self._other, self._task.most_rows
        while True:
            count = _hear_number(self._session, first)
            if count == _END:
                return
            if not 1 <= count <= MOST_ITEMS:
                raise FrameError(first, f"it announced a batch of {count} questions")
            facts = self._session.recv(first, "batch/items", (count, 4)).tolist()
            items = [(Ticket(*ticket), rows) for *ticket, rows in facts]
            if any(rows < 0 for _, rows in items) or sum(rows for _, rows in items) > most:
                raise FrameError(first, f"it announced a batch of more than {most} rows")
            self._work(items)

    def _work(self, items: list[PendingQuestion]) -> None:
        """Answer a batch, and refuse what came in two shares that do not fit each other."""
        for ticket, rows in items:
            if not rows:
                self.queue.answer(ticket, "the two servers did not get shares of the same shape")
        asked = [(ticket, rows) for ticket, rows in items if rows]
        total = sum(rows for _, rows in asked)
        if not total:
            return
        answers = self._compute(asked, self._task.padded(total))
        # Before the answers leave: who has one may ask at once how many there were.
        self.tally.questions += len(asked)
        self.tally.rows += total
        at = 0
        for ticket, rows in asked:
            self.queue.answer(ticket, answers[at : at + rows].clone())
            at += rows

    def _compute(self, asked: list[PendingQuestion], padded: int) -> Tensor:
        task = self._task
        x = torch.zeros((padded, *task.model.inputs), dtype=torch.int64)
        at = 0
        for ticket, rows in asked:
            words = self.queue.words(ticket)
            # Whoever left meanwhile is answered nonsense, or rather nobody is.
            if words is not None and len(words) == rows:
                x[at : at + rows] = words
            at += rows
        spec = Spec.of(shape=tuple(x.shape), frac_bits=task.frac_bits, bound=task.feature_bound)
        kept = {"x": self._clipped(Share(x, spec), padded)}
        share = self._run(padded, partial(task.answer, rows=padded), kept)
        turn = self.tally.count_run(padded, self._plans.get(padded))
        assert isinstance(share, Share)  # noqa: S101 - a service answers with numbers
        # A fresh mask for every batch: under one, two answers would show their difference.
        mask = self._session.shared(self._other).fork(f"answers {self._number}.{turn}")
        words = mask.words(tuple(share.words.shape))
        return share.words + words if self._is_first else share.words - words

    def _clipped(self, x: Share, rows: int) -> Share:
        """Bring the rows within their bound, if the service does that itself."""
        plan = self._plans.clips.get(rows)
        if plan is None:
            return x
        program = partial(clip_rows, task=self._task, rows=rows)
        quiet = replace(self._session, progress=Progress())
        share = compute(quiet, plan, program, inputs={}, kept={"x": x}, is_agreed=True)
        self.tally.count_guard(rows, plan)
        assert isinstance(share, Share)  # noqa: S101 - clipped numbers are numbers
        return Share(share.words, x.spec)

    def _run(self, rows: int, program: Callable[[SecretOps], R], kept: Mapping[str, Share]) -> R:
        """Run a program on the weights; what it notes must not pile up over runs."""
        return compute(
            replace(self._session, ledger=self.tally.ledger, progress=Progress()),
            self._plans.get(rows),
            program,
            inputs={},
            kept={**self._weights, **kept},
            cache=self._plans.cache,
            is_agreed=True,
        )


def deal_predictions(session: Session, task: ServiceTask) -> ServiceTally:
    """Deal and help as the third party, until the first server ends the service."""
    task.refuse_view()
    plans, tally = BatchPlans(task), ServiceTally()
    session.agree("service", task.digest())
    _check(session, task, None, tally)
    plans.fill(first_run=session.begin_run() + 1)
    session.agree("plans", plans.digest())
    serve(session, plans.get(0), inputs={}, cache=plans.cache, is_agreed=True)
    tally.count_run(0, plans.get(0))
    while True:
        rows = _hear_number(session, task.roles.first)
        if rows == _END:
            return tally
        if rows not in task.sizes:
            raise FrameError(task.roles.first, f"it announced a batch of {rows} rows")
        own = replace(session, ledger=tally.ledger, progress=Progress())
        tally.ledger.record(*BATCH.leaks(task.roles.first, (session.me,)))
        if task.clip:
            serve(own, plans.clips[rows], inputs={}, is_agreed=True)
            tally.count_guard(rows, plans.clips[rows])
        serve(own, plans.get(rows), inputs={}, cache=plans.cache, is_agreed=True)
        tally.count_run(rows, plans.get(rows))
        tally.rows += rows


class BatchPlans:
    """The plans of a service: for holding the weights, and one for every size of a batch."""

    def __init__(self, task: ServiceTask) -> None:
        self._task = task
        self.cache = OpeningCache()
        self._made = {0: task.plan(0, self.cache)}
        self.clips = {size: clip_plan(task, size) for size in task.sizes if task.clip}

    def fill(self, *, first_run: int) -> None:
        """Plan batches as they will be once the weights are held, which is the run of this number.

        So everything is planned, and can be agreed upon, before anything is opened. A run of
        another number would leave other masks in the cache, and the first batch would stop.
        """
        foreseen = OpeningCache()
        foreseen.keep(first_run, self._made[0].kept_openings, {}, {})
        self._made |= {size: self._task.plan(size, foreseen) for size in self._task.sizes}

    def get(self, rows: int) -> Plan:
        """Return the plan of a batch."""
        return self._made[rows]

    def digest(self) -> bytes:
        """Hash everything that will be done."""
        plans = (*self._made.values(), *self.clips.values())
        return hashlib.sha256(b"".join(plan.digest() for plan in plans)).digest()


@dataclass(frozen=True, kw_only=True)
class ServicePlans:
    """The plans of a service: those of its start, and those of a batch of every size."""

    start: tuple[Plan, ...]
    batches: Mapping[int, tuple[Plan, ...]]


def plan_service(task: ServiceTask, *, parties: tuple[str, ...]) -> ServicePlans:
    """Plan a service between these parties; what a number of questions costs follows."""
    plans = BatchPlans(task)
    plans.fill(first_run=1)
    clips = {size: (plan,) for size, plan in plans.clips.items()}
    return ServicePlans(
        start=(check_plan(task, parties), plans.get(0)),
        batches={size: (*clips.get(size, ()), plans.get(size)) for size in task.sizes},
    )


def _check(
    session: Session, task: ServiceTask, share: Mapping[str, Tensor] | None, tally: ServiceTally
) -> None:
    """Compare the weights with their bound, and note what was opened."""
    quiet = replace(session, ledger=tally.ledger, progress=Progress())
    tally.count_guard(0, check_weights(quiet, task, share))


def _tell(session: Session, to: str, number: int) -> None:
    session.send(to, "batch/size", torch.tensor((number,)), phase="setup")


def _hear_number(session: Session, sender: str) -> int:
    return int(session.recv(sender, "batch/size", (1,)))
