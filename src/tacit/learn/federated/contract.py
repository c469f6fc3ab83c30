"""What every aggregator does: two sides that exchange bytes until the mean is known."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tacit.dp import Event
from tacit.errors import PartyError
from tacit.learn.federated.packing import VoidRound

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Update:
    """What a client learned, and how many examples it learned from.

    ``small`` are the parameters that may go without noise, where the job says so.
    """

    values: Floats = field(repr=False)
    weight: int
    small: NDArray[np.bool_] | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class Aggregate:
    """The mean update of those who stayed, and who they are."""

    mean: NDArray[np.float64] = field(repr=False)
    weight: int
    survivors: tuple[int, ...]


Offer = Callable[[], Update]
"""Gives the update when it is needed: it may be trained only then."""


class ServerSide(Protocol):
    """One round at the server."""

    def invite(self) -> dict[int, bytes]:
        """Write the first message to everyone."""
        ...

    def accept(self, index: int, message: bytes) -> None:
        """Take an answer; PartyError refuses it by name."""
        ...

    def complain(self, index: int, error: PartyError) -> None:
        """Hear that a client refused to go on; VoidRound where that ends the round."""
        ...

    def close(self) -> dict[int, bytes]:
        """End a stage; write what goes out next, nothing when the round is over."""
        ...

    def aggregate(self) -> Aggregate:
        """Return the result of the round."""
        ...


class ClientSide(Protocol):
    """One round at a client."""

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Answer a message of the server; PartyError refuses to go on."""
        ...

    def save(self) -> bytes:
        """Write the state, so that another process of the same client can go on."""
        ...


Exchange = Callable[[dict[int, bytes]], Iterable[tuple[int, "bytes | PartyError"]]]
"""Carries messages to those named and yields what comes back, in any order; silence is dropping."""


@dataclass
class Meter:
    """What a round moved: payload bytes from and to clients, and who was refused.

    ``spent`` is what clients wrote into ledgers of their own, where the engine can see them.
    """

    up: dict[int, int] = field(default_factory=dict)
    down: dict[int, int] = field(default_factory=dict)
    refused: list[PartyError] = field(default_factory=list)
    spent: dict[int, tuple[Event, ...]] = field(default_factory=dict)


def run_round(server: ServerSide, exchange: Exchange, meter: Meter) -> Aggregate:
    """Carry a round through all of its stages.

    Raises:
        VoidRound: it gives no result.
    """
    messages = server.invite()
    while messages:
        for index, message in messages.items():
            meter.down[index] = meter.down.get(index, 0) + len(message)
        for index, answer in exchange(messages):
            try:
                if isinstance(answer, PartyError):
                    server.complain(index, answer)
                    raise answer
                meter.up[index] = meter.up.get(index, 0) + len(answer)
                server.accept(index, answer)
            except VoidRound:
                raise
            except PartyError as error:
                meter.refused.append(error)
        messages = server.close()
    return server.aggregate()
