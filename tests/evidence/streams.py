"""Notes every generator that is drawn from, so that a mask that is drawn twice is seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tacit.party import Session
from tacit.ring import Prg


@dataclass
class Streams:
    """Which keys each party drew from, and by how many generators: two draw the same words."""

    labels: dict[bytes, str] = field(default_factory=dict)
    drawn: dict[str, dict[bytes, list[Prg]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )

    @property
    def count(self) -> int:
        """Return how many streams of shared generators were drawn from."""
        return len({key for mine in self.drawn.values() for key in mine} & self.labels.keys())

    def twice(self) -> list[str]:
        """List what a party drew twice.

        The dealer draws the mask of what stays open again, to correct products with it: it opens
        nothing. A computing party that did would open two secrets under one mask.
        """
        found = []
        for me, mine in self.drawn.items():
            for key, prgs in mine.items():
                label = self.labels.get(key, "its own")
                is_kept = me == "dealer" and "/mask " in label
                if len({id(one) for one in prgs}) > 1 and not is_kept:
                    found.append(f"{me}: {label}")
        return found


@contextmanager
def noted_streams() -> Iterator[Streams]:
    """Note all draws of the parties of the sessions that begin inside."""
    noted, fork, fill, agree = Streams(), Prg.fork, Prg._fill, Session.agree
    owners: dict[int, tuple[Prg, str]] = {}  # of generators that stay alive, or numbers come back

    def forks(self: Prg, label: str) -> Prg:
        child = fork(self, label)
        above = noted.labels.get(self._key)
        noted.labels[child._key] = f"{above}/{label}" if above else label
        owners[id(child)] = child, owners.get(id(self), (self, ""))[1]
        return child

    def fills(self: Prg, target: Any) -> None:
        _, owner = owners.setdefault(id(self), (self, ""))
        noted.drawn[owner][self._key].append(self)
        fill(self, target)

    def agrees(self: Session, *args: Any) -> None:
        owners.update({id(one): (one, self.me) for one in self.generators.values()})
        agree(self, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Prg, "fork", forks)
        patch.setattr(Prg, "_fill", fills)
        patch.setattr(Session, "agree", agrees)
        yield noted
