"""What clients have asked: the queue of one server, and the order in which both servers answer."""

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as NoAnswerError
from dataclasses import dataclass, field
from time import monotonic

import torch
from torch import Tensor

from tacit import ring
from tacit.errors import FrameError, PartyError
from tacit.inference.service.task import ServiceTask
from tacit.transport import Frame, Link, frame_bytes

ANSWER_S = 120.0
"""How long a question may wait, for its other share and for its turn."""
GOODBYE_S = 20.0
"""How long clients have to take their last answers when the service ends."""
LARGEST_VISIT = 1 << 62
"""Visits are coins of a client: two of them meet once in 2^31 visits."""
_VISITS = 2
"""Older visits of a client are forgotten: it has come anew since."""
_NUMBERS = 4
"""A client has one question at a time; a report of the one before may still be on its way."""
MOST_ITEMS = 4096
"""Questions in one batch, those included that cannot be answered."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ticket:
    """A question by name: the client's place in the task, its visit, and its number there."""

    client: int
    visit: int
    number: int


@dataclass(frozen=True, eq=False)
class _Question:
    words: Tensor
    answer: "Future[Tensor | str]" = field(default_factory=Future)


PendingQuestion = tuple[Ticket, int]
"""A question and its rows; none if it cannot be answered."""
Report = Callable[[Ticket, int], None]
"""Hears of every question, and of how many rows it is; none if it was refused."""


class RequestQueue:
    """Take questions from links in threads of their own, and hand the answers back.

    A client's next question is read when its last one is answered, so what a client can make a
    server keep is one question, and a client that does not read its answers keeps nobody else
    waiting.
    """

    def __init__(
        self,
        task: ServiceTask,
        *,
        report: Report,
        answer_s: float = ANSWER_S,
        goodbye_s: float = GOODBYE_S,
    ) -> None:
        self._task = task
        self._report = report
        self._answer_s = answer_s
        self._goodbye_s = goodbye_s
        self._lock = threading.Lock()
        self._open: dict[Ticket, _Question] = {}
        self._links: dict[str, Link] = {}
        self._is_closed = False

    def admit(self, link: Link) -> None:
        """Serve a client over a link, in place of an older link of the same client."""
        client = self._task.clients.index(link.peer)
        with self._lock:
            old = self._links.get(link.peer)
            self._links[link.peer] = link
            is_closed = self._is_closed
            given_up = [one for ticket, one in self._open.items() if ticket.client == client]
        # Otherwise a client that comes again and again would leave a waiting thread each time.
        for question in given_up:
            question.answer.cancel()
        if old is not None:
            old.close()
        if is_closed:
            link.close()
            return
        name = f"tacit-client-{link.peer}"
        threading.Thread(target=self._attend, args=(link,), name=name, daemon=True).start()

    def words(self, ticket: Ticket) -> Tensor | None:
        """Return my share of a question, if it is still waited for."""
        with self._lock:
            question = self._open.get(ticket)
        return None if question is None else question.words

    def answer(self, ticket: Ticket, reply: Tensor | str) -> None:
        """Answer a question with my share, or with the reason why there is none."""
        with self._lock:
            question = self._open.pop(ticket, None)
        if question is not None and question.answer.set_running_or_notify_cancel():
            question.answer.set_result(reply)

    def waiting(self) -> int:
        """Return how many questions wait."""
        with self._lock:
            return len(self._open)

    def close(self) -> None:
        """Tell everyone who waits that there will be no answer, and close all links."""
        with self._lock:
            self._is_closed = True
            questions, links = list(self._open.values()), list(self._links.values())
            self._open.clear()
        for question in questions:
            question.answer.cancel()
        # All at once, and not for as long as a client that takes a byte now and then would have us.
        closing = [threading.Thread(target=link.close, daemon=True) for link in links]
        for thread in closing:
            thread.start()
        limit = monotonic() + self._goodbye_s
        for thread in closing:
            thread.join(max(limit - monotonic(), 0))

    def _attend(self, link: Link) -> None:
        """Answer one client until it leaves."""
        try:
            if self._task.told:
                told = torch.tensor(self._task.told)
                link.send(
                    "told/0", Frame("i64", tuple(told.shape), ring.to_bytes(told)), phase="setup"
                )
            link.send("terms/0", frame_bytes(self._task.digest()), phase="setup")
            visit = _read_visit(link)
            number = 0
            while True:
                self._answer_one(link, Ticket(self._task.clients.index(link.peer), visit, number))
                number += 1
        except PartyError as error:
            _log.info("%s has left: %s", link.peer, error)
        finally:
            with self._lock:
                if self._links.get(link.peer) is link:
                    del self._links[link.peer]
            link.close()

    def _answer_one(self, link: Link, ticket: Ticket) -> None:
        frame = link.recv(f"ask/{ticket.number}")
        problem = self._problem(frame)
        if problem is not None:
            self._report(ticket, 0)
            return _send(link, ticket, problem)
        question = _Question(ring.from_bytes(frame.data, frame.dtype, frame.shape))
        with self._lock:
            self._open[ticket] = question
            is_served = self._links.get(link.peer) is link and not self._is_closed
        if not is_served:  # who gave up what was open did not see this one
            question.answer.cancel()
        self._report(ticket, frame.shape[0])
        try:
            reply = question.answer.result(self._answer_s)
        except NoAnswerError:
            reply = f"the other server did not get its share within {self._answer_s:g} s"
        except CancelledError:
            reply = "the service has ended, or another connection took the place of this one"
        finally:
            with self._lock:
                self._open.pop(ticket, None)
        return _send(link, ticket, reply)

    def _problem(self, frame: Frame) -> str | None:
        inputs, most = self._task.model.inputs, self._task.most_rows
        if frame.dtype != "i64" or len(frame.shape) < 1 or frame.shape[1:] != inputs:
            came = f"{frame.dtype}{frame.shape}"
            return f"wanted rows of shape {inputs} as i64, got {came}"
        if not 1 <= frame.shape[0] <= most:
            return f"wanted 1 to {most} rows at a time, got {frame.shape[0]}"
        return None


class Order:
    """Pair what both servers report, and hand out batches. For threads.

    A client has one question in it at most: who asks again has given up what it asked before. So a
    client that comes again and again waits behind the others, and takes no more room than they do.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[int, OrderedDict[int, dict[int, int]]] = {}
        self._ready: OrderedDict[int, PendingQuestion] = OrderedDict()
        self._void: dict[int, deque[Ticket]] = {}
        self._failure: BaseException | None = None

    def report(self, ticket: Ticket, rows: int) -> None:
        """Hear of a share from one of the servers; the second report makes the pair."""
        with self._changed:
            visits = self._waiting.setdefault(ticket.client, OrderedDict())
            waiting = visits.setdefault(ticket.visit, {})
            while len(visits) > _VISITS:
                visits.popitem(last=False)
            if ticket.number not in waiting:
                waiting[ticket.number] = rows
                while len(waiting) > _NUMBERS:
                    waiting.pop(next(iter(waiting)))
                return
            other = waiting.pop(ticket.number)
            if other == rows and rows:
                given_up, _ = self._ready.pop(ticket.client, (None, 0))
                self._ready[ticket.client] = ticket, rows
            else:
                given_up = ticket if other or rows else None
            if given_up is not None:
                void = self._void.setdefault(ticket.client, deque(maxlen=_NUMBERS))
                void.append(given_up)
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Wake whoever waits for a batch, with an error."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def take(self, most_rows: int, *, wait_s: float) -> list[PendingQuestion]:
        """Return the next questions that fit into a batch; empty if none came in time."""
        with self._changed:
            if not (self._ready or self._void or self._failure):
                self._changed.wait(wait_s)
            if self._failure is not None:
                raise self._failure
            items: list[PendingQuestion] = []
            while self._void and len(items) < MOST_ITEMS:
                client, void = next(iter(self._void.items()))
                items.append((void.popleft(), 0))
                if not void:
                    del self._void[client]
            rows = 0
            while self._ready and len(items) < MOST_ITEMS:
                item = next(iter(self._ready.values()))
                if rows + item[1] > most_rows:
                    break
                items.append(self._ready.pop(item[0].client))
                rows += item[1]
            return items


def _send(link: Link, ticket: Ticket, reply: Tensor | str) -> None:
    tag = f"answer/{ticket.number}"
    if isinstance(reply, str):
        link.send(tag, frame_bytes(reply.encode()))
        return
    link.send(tag, Frame("i64", tuple(reply.shape), ring.to_bytes(reply)))


def _read_visit(link: Link) -> int:
    """Read the number by which both servers know this visit of a client."""
    frame = link.recv("visit/0")
    if frame.dtype != "i64" or frame.shape != (1,):
        raise FrameError(link.peer, f"wanted the number of a visit, got {frame.dtype}{frame.shape}")
    visit = int(torch.frombuffer(bytearray(frame.data), dtype=torch.int64)[0])
    if not 0 <= visit < LARGEST_VISIT:
        raise FrameError(link.peer, f"wanted the number of a visit, got {visit}")
    return visit
