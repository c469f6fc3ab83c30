"""The servers and the dealer of a prediction service: one batch after the other, until the end."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from tacit.crypto import Identity
from tacit.errors import FrameError, PartyError
from tacit.inference.service.acceptor import Acceptor
from tacit.inference.service.queue import (
    ANSWER_S,
    MOST_ITEMS,
    Order,
    PendingQuestion,
    RequestQueue,
    Ticket,
)
from tacit.inference.service.sized import leaks_of_sizes
from tacit.inference.service.spec import ServeSpec
from tacit.inference.service.task import ServiceTask, SharedWalk
from tacit.mpc import Share, find_protocol, sum_forecasts
from tacit.mpc.share import Spec
from tacit.party import Fact, LeakLedger, Progress, Session, Usage, merge
from tacit.result import Claim, Leak, Metric, Result
from tacit.transport import Credentials, LinkLimits, Patience, Peer, listen

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
    """What a server or dealer has done so far; its size does not grow with the number of runs."""

    walk: SharedWalk
    ledger: LeakLedger
    questions: int = 0
    rows: int = 0
    batches: int = 0


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
        model: Mapping[str, Tensor],
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Begin with what I hold of the model.

        Args:
            session: between the servers and the dealer.
            task: what is served.
            model: my share of every weight; where a server owns the model, its weights, and
                nothing of the other one.
            answer_s: how long a question may wait.

        Raises:
            DataError: it is of another model.
        """
        task.refuse_view()
        self._session = session
        self._task = task
        if task.owner is None:
            self._held: Mapping[str, Any] = task.share_of(model)
        else:
            self._held = task.weights_of(model) if task.owner == session.me else {}
        self._weights: Mapping[str, Share] = {}
        self._order = Order()
        self.tally = _begin(session, task)
        self.queue = RequestQueue(task, report=self._reported, answer_s=answer_s)

    @property
    def _is_first(self) -> bool:
        return self._session.me == self._task.spec.roles.first

    @property
    def _other(self) -> str:
        roles = self._task.spec.roles
        return roles.second if self._is_first else roles.first

    def run(self, stop: threading.Event) -> ServiceTally:
        """Answer until the first server is stopped, or somebody fails; returns what was done."""
        try:
            self._number, self._weights = _start(
                self._session, self._task, self.tally.walk, self._held
            )
            if self._is_first:
                self._lead(stop)
            else:
                self._follow()
        finally:
            self.queue.close()
        return self.tally

    def _reported(self, ticket: Ticket, rows: int) -> None:
        """Note a share of mine: the first server keeps the list, the second tells it."""
        client = self._task.clients[ticket.client]
        self.tally.ledger.record(*QUESTION.leaks(client, self._task.spec.roles.computing))
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
        _tell(self._session, self._task.spec.roles.dealer, _END)

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
            _tell(self._session, self._task.spec.roles.dealer, self._task.padded(rows))
            self.tally.ledger.record(
                *BATCH.leaks(self._session.me, (self._task.spec.roles.dealer,))
            )

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
        spec = Spec.of(shape=tuple(x.shape), frac_bits=task.spec.frac_bits, bound=task.spec.bound)
        share = self.tally.walk.answer(padded, self._weights, Share(x, spec))
        self.tally.batches += 1
        assert isinstance(share, Share)  # noqa: S101 - a service answers with numbers
        # A fresh mask for every batch: under one, two answers would show their difference.
        turn = f"answers {self._number}.{self.tally.batches}"
        mask = self._session.shared(self._other).fork(turn)
        words = mask.words(tuple(share.words.shape))
        return share.words + words if self._is_first else share.words - words


def deal_predictions(session: Session, task: ServiceTask) -> ServiceTally:
    """Deal and help as the third party, until the first server ends the service."""
    task.refuse_view()
    tally = _begin(session, task)
    _start(session, task, tally.walk, {})
    while True:
        rows = _hear_number(session, task.spec.roles.first)
        if rows == _END:
            return tally
        if rows not in task.sizes:
            raise FrameError(task.spec.roles.first, f"it announced a batch of {rows} rows")
        tally.ledger.record(*BATCH.leaks(task.spec.roles.first, (session.me,)))
        tally.walk.answer(rows, {})
        tally.batches += 1
        tally.rows += rows


def plan_service(task: ServiceTask, *, parties: tuple[str, ...]) -> SharedWalk:
    """Plan a service between these parties; what a number of questions costs follows."""
    walk = SharedWalk(task)
    walk.begin({}, parties=parties)
    walk.hold({})
    for size in task.sizes:
        walk.answer(size, {})
    return walk


def _begin(session: Session, task: ServiceTask) -> ServiceTally:
    """Begin to count; what the session itself would note must not pile up over runs."""
    ledger = LeakLedger()
    own = replace(session, ledger=ledger, progress=Progress())
    return ServiceTally(SharedWalk(task, session=own, is_endless=True), ledger)


def _start(
    session: Session, task: ServiceTask, walk: SharedWalk, held: Mapping[str, Any]
) -> tuple[int, Mapping[str, Share]]:
    """Agree on everything, enter or check the weights, and open them under masks.

    Returns:
        The number of the run, and my share of every weight.
    """
    session.agree("service", task.digest())
    weights = walk.begin(held, parties=session.parties)
    # Masks of another service of this session must not come again.
    number = session.begin_run()
    walk.rehearse(first_run=number + 1)
    walk.walker.agree(walk.guard)
    walk.hold(weights)
    return number, weights


def _tell(session: Session, to: str, number: int) -> None:
    session.send(to, "batch/size", torch.tensor((number,)), phase="setup")


def _hear_number(session: Session, sender: str) -> int:
    return int(session.recv(sender, "batch/size", (1,)))


_MIB = 1 << 20
Note = Callable[[str], None]
_CLAIM = Claim(
    subject="the model, towards clients who ask much",
    guarantee="no guarantee",
    assumptions=(
        "who sees enough answers can train a model of its own on them; the service does not limit "
        "how much a client asks",
    ),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Post:
    """One server of a service, as its clients find it.

    Attributes:
        model: its share of every weight, or all weights if it owns them; else nothing.
        identity: its key.
        address: where clients come.
        clients: those who may.
        patience: how long it waits for their questions.
        stop: set to end the service.
    """

    model: Mapping[str, Tensor]
    identity: Identity
    address: tuple[str, int]
    clients: Mapping[str, Peer]
    patience: Patience
    stop: threading.Event


def attend(
    session: Session, task: ServiceTask, post: Post | None, *, role: str, note: Note
) -> Result:
    """Do one party's part of a service, and say in the end what was done.

    Args:
        session: between the servers and the dealer.
        task: what is served, the same for everyone.
        post: of a server; the dealer has none.
        role: what this party does, in words.
        note: is told when the party is ready.
    """
    usage = Usage()
    if post is None:
        note(f"{session.me}: ready")
        tally = deal_predictions(session, task)
    else:
        tally = _serve(session, task, post, note)
    is_first = session.me == task.spec.roles.first
    return Result(
        kind="serve",
        name=task.name,
        protocol=task.spec.protocol.kind,
        launched="session",
        parties=(usage.report(name=session.me, role=role, progress=session.progress),),
        forecast=sum_forecasts(tally.walk.runs),
        metered=session.cost(),
        leakage=(
            *(answered(task, tally.rows) if is_first and tally.rows else ()),
            *(_told(task, ("clients",)) if is_first else ()),
            *session.ledger.entries(),
            *tally.ledger.entries(),
        ),
        claims=(*find_protocol(task.spec.protocol.kind).claims, _CLAIM),
        utility=_metrics(tally) if is_first else (),
    )


def _serve(session: Session, task: ServiceTask, post: Post, note: Note) -> ServiceTally:
    me, (host, port) = session.me, post.address
    server = PredictionServer(session, task, dict(post.model))
    with listen(host, port) as listener:
        acceptor = Acceptor(
            me,
            post.clients,
            credentials=Credentials(post.identity.certificate_file, post.identity.key_file),
            listener=listener,
            patience=post.patience,
            limits=_client_limits(task),
        )
        acceptor.open(server.queue.admit)
        note(f"{me}: open for {', '.join(task.clients)} at {host}:{port}")
        try:
            return server.run(post.stop)
        finally:
            acceptor.close()


def _client_limits(task: ServiceTask) -> LinkLimits:
    """Let a client make us keep no more than a few of its questions."""
    frame = max(_MIB, 8 * task.most_rows * max(prod(task.model.inputs), task.width))
    return LinkLimits(
        max_frame_bytes=frame, queue_bytes=frame, prefetch_bytes=frame, stash_bytes=2 * frame
    )


def foreseen(task: ServiceTask, walk: SharedWalk) -> tuple[Leak, ...]:
    """List what a start and one question of every client, in a batch of its own, will tell."""
    servers, dealer = task.spec.roles.computing, task.spec.roles.dealer
    plans = (*walk.plans_of(0), *walk.plans_of(task.most_rows))
    return (
        *answered(task, 1),
        *merge(leak for plan in plans for leak in plan.leaks),
        *_told(task, (*servers, dealer, "clients")),
        *QUESTION.leaks_of_all(task.clients, servers),
        *BATCH.leaks(task.spec.roles.first, (dealer,)),
    )


def _told(task: ServiceTask, names: Sequence[str]) -> tuple[Leak, ...]:
    """List what these are told of the model of one server."""
    return leaks_of_sizes(task.spec, names) if isinstance(task.spec, ServeSpec) else ()


def answered(task: ServiceTask, rows: int) -> tuple[Leak, ...]:
    """List what clients are told who asked about so many rows."""
    what = "the class of every row" if task.spec.reveal == "class" else "scores of every row"
    return (
        Leak(
            to="clients",
            what=f"{what} that they asked about",
            why="declared in the job",
            kind="output",
            elements=rows * task.width,
        ),
    )


def _metrics(tally: ServiceTally) -> tuple[Metric, ...]:
    return (
        Metric(name="questions answered", value=float(tally.questions), unit=""),
        Metric(name="rows answered", value=float(tally.rows), unit=""),
        Metric(name="batches", value=float(tally.batches), unit=""),
    )
