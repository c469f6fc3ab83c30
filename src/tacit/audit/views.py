"""The rules of the audit room: an attack sees its observation and nothing else.

A *view* is a threat model in code: a function that is given a target, its data and what leaked,
and returns an *observation*, a frozen record of exactly what the attacker may hold. An *attack*
is given an observation and a generator, and returns a guess. Only then is the truth brought in,
by a function that scores the guess. So an attack cannot cheat by accident: the target, the truth
and the rows that are not its own are not within its reach.
"""

import hashlib
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from tacit.ring import KEY_BYTES, Prg

Seen = TypeVar("Seen", contravariant=True)
Guess = TypeVar("Guess", covariant=True)
Built = TypeVar("Built")


class Attack(Protocol[Seen, Guess]):
    """Something that guesses what it was not shown."""

    def __call__(self, seen: Seen, *, generator: torch.Generator) -> Guess:
        """Return a guess; all randomness comes from the generator."""
        ...


def fresh(build: Callable[[], Built], seed: int) -> Built:
    """Build something whose first weights follow from the seed, leaving torch's generator alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def started(build: Callable[[], Built], generator: torch.Generator) -> Built:
    """Build something whose first weights follow from a generator."""
    return fresh(build, int(torch.empty(()).uniform_(generator=generator) * 2**31))


def seeded(seed: int) -> torch.Generator:
    """Return a generator for attacks: they need no secrecy, and must be repeatable."""
    return torch.Generator().manual_seed(seed)


def prg_of(seed: int) -> Prg:
    """Return a generator that can be repeated: for games, never for secrets."""
    return Prg(hashlib.sha256(f"audit {seed}".encode()).digest()[:KEY_BYTES])
