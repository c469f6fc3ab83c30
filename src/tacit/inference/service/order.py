"""The first server's list of questions that both servers have, in the order of their coming."""

import threading
from collections import OrderedDict, deque

from tacit.inference.service.queue import Ticket

_VISITS = 2
"""Older visits of a client are forgotten: it has come anew since."""
_NUMBERS = 4
"""A client has one question at a time; a report of the one before may still be on its way."""
MOST_ITEMS = 4096
"""Questions in one batch, those included that cannot be answered."""

Item = tuple[Ticket, int]
"""A question and its rows; none if it cannot be answered."""


class Order:
    """Pair what both servers report, and hand out batches. For threads.

    A client has one question in it at most: who asks again has given up what it asked before. So a
    client that comes again and again waits behind the others, and takes no more room than they do.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: dict[int, OrderedDict[int, dict[int, int]]] = {}
        self._ready: OrderedDict[int, Item] = OrderedDict()
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

    def take(self, most_rows: int, *, wait_s: float) -> list[Item]:
        """Return the next questions that fit into a batch; empty if none came in time."""
        with self._changed:
            if not (self._ready or self._void or self._failure):
                self._changed.wait(wait_s)
            if self._failure is not None:
                raise self._failure
            items: list[Item] = []
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
