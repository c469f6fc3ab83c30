"""One party of a prediction service: up until it is stopped, and what it says then."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from torch import Tensor

from tacit.crypto import Identity
from tacit.inference.service.acceptor import Acceptor
from tacit.inference.service.server import (
    BATCH,
    QUESTION,
    PredictionServer,
    ServiceTally,
    deal_predictions,
)
from tacit.inference.service.task import ServiceTask
from tacit.inference.service.walk import SharedWalk
from tacit.mpc import find_protocol, sum_forecasts
from tacit.party import Session, Usage, merge
from tacit.result import Claim, Leak, Metric, Result
from tacit.transport import Credentials, LinkLimits, Patience, Peer, listen

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
        share: its share of every weight.
        identity: its key.
        address: where clients come.
        clients: those who may.
        patience: how long it waits for their questions.
        stop: set to end the service.
    """

    share: Mapping[str, Tensor]
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
            *tally.ledger.entries(),
        ),
        claims=(*find_protocol(task.spec.protocol.kind).claims, _CLAIM),
        utility=_metrics(tally) if is_first else (),
    )


def _serve(session: Session, task: ServiceTask, post: Post, note: Note) -> ServiceTally:
    me, (host, port) = session.me, post.address
    server = PredictionServer(session, task, dict(post.share))
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
        *QUESTION.leaks_of_all(task.clients, servers),
        *BATCH.leaks(task.spec.roles.first, (dealer,)),
    )


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
