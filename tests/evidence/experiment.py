"""What an experiment is: a function of a seed and a count that says what it tried and found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Tried:
    """One thing that was tried, the kind of what came of it, and how many there were of them.

    What contradicts the page raises `AssertionError` instead.
    """

    what: str
    found: str
    count: int = 1

    def __str__(self) -> str:
        often = f"{self.count:,} " if self.count != 1 else ""
        return f"{self.what}: {often}{self.found}"


def coins(*names: object) -> random.Random:
    """Return what an experiment draws from, by its name, its seed and the number of a try."""
    return random.Random(" ".join(map(str, names)))  # noqa: S311 - what is tried is no secret


Try = Callable[[int, int], Iterator[Tried]]


@dataclass(frozen=True)
class Experiment:
    """An experiment, how many tries the page reports, and how many the slow tests make.

    Its promise is the docstring of ``run``: what must hold for every try.
    """

    name: str
    run: Try
    count: int
    small: int
    is_daily: bool = False

    @property
    def promise(self) -> str:
        """Say in a line what must hold."""
        return (self.run.__doc__ or "").strip().split("\n")[0]

    def tally(self, seed: int, count: int, say: Callable[[str], None]) -> Counter[str]:
        """Run it, say every try, and count what was found."""
        found = Counter[str]()
        for one in self.run(seed, count):
            say(str(one))
            found[one.found] += one.count
        assert found, "nothing was tried"
        return found
