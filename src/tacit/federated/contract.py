"""What every aggregator does: two sides that exchange messages until the mean is known."""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tacit.dp import Event
from tacit.errors import FrameError, PartyError

Floats = NDArray[np.floating[Any]]

_HEAD = struct.Struct("<4sB")
_MAGIC = b"tfl1"
_NUMBER = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")

Field = int | bytes | memoryview
PUBLIC_BYTES = 32  # of a public key: X25519 or Ed25519
HELPER = -1
"""The index under which messages go to the one party beside server and clients, if there is one."""


class VoidRound(PartyError):
    """The round gives no result, because too few took part or a party cheated; says why."""


class RunOver(VoidRound):
    """No round follows: a party cheated, and what it did cannot be undone; says why."""


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
    """The mean update of those who stayed, and who they are; and who was left out, and why."""

    mean: NDArray[np.float64] = field(repr=False)
    weight: int
    survivors: tuple[int, ...]
    refused: tuple[PartyError, ...] = ()


Offer = Callable[[], Update]
"""Gives the update when it is needed: it may be trained only then."""
Enter = Callable[[bytes], None]
"""Writes down, for good, that something was done; PartyError if it was done before."""


Helper = Callable[[bytes], bytes]
"""Answers the messages of a server to the one party beside the clients; PartyError refuses."""


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a client sits: its number, the key it is known by, and the helper's public key.

    ``saved`` is what an earlier process of the same client wrote: the invitation and the state.
    ``secret`` is what `provision` made for this client.
    """

    index: int
    signing: Ed25519PrivateKey
    helper: bytes = b""
    saved: tuple[bytes, bytes] | None = None
    secret: bytes = field(default=b"", repr=False)


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
    found = server.aggregate()
    meter.refused.extend(found.refused)
    return found


def pack(kind: int, *fields: Field) -> bytes:
    """Write a message: numbers below 2^64 and byte strings, in the order given."""
    parts: list[bytes | memoryview] = [_HEAD.pack(_MAGIC, kind)]
    for one in fields:
        if isinstance(one, int):
            parts.append(_NUMBER.pack(one))
        else:
            parts += [_LENGTH.pack(len(one)), one]
    return b"".join(parts)


def unpack(message: bytes, kind: int, layout: str, *, sender: str) -> list[Field]:
    """Read a message that `pack` made: ``layout`` has an "i" per number, a "b" per byte string.

    A "v" is a byte string that is not copied but viewed.

    Raises:
        FrameError: another kind, or not as long as it says.
    """
    if len(message) < _HEAD.size or _HEAD.unpack_from(message) != (_MAGIC, kind):
        raise FrameError(sender, f"wanted a message of kind {kind}, got {len(message)} other bytes")
    at, fields = _HEAD.size, list[Field]()
    view = memoryview(message)
    for letter in layout:
        size, at = _read_size(view, at, letter, sender)
        taken = view[at : at + size]
        if len(taken) != size:
            raise FrameError(sender, f"a field of {size} bytes is cut off after {len(taken)}")
        if letter == "i":
            fields.append(_NUMBER.unpack(taken)[0])
        else:
            fields.append(taken if letter == "v" else bytes(taken))
        at += size
    if at != len(message):
        raise FrameError(sender, f"{len(message) - at} bytes too many in a message of kind {kind}")
    return fields


def records(body: bytes, size: int, *, sender: str) -> list[bytes]:
    """Cut a byte string into records of one size.

    Raises:
        FrameError: its length is no multiple of the size.
    """
    if len(body) % size:
        raise FrameError(sender, f"wanted records of {size} bytes, got {len(body)} bytes")
    return [body[at : at + size] for at in range(0, len(body), size)]


def _read_size(view: memoryview, at: int, letter: str, sender: str) -> tuple[int, int]:
    if letter == "i":
        return _NUMBER.size, at
    if at + _LENGTH.size > len(view):
        raise FrameError(sender, "the message ends inside the length of a field")
    return _LENGTH.unpack_from(view, at)[0], at + _LENGTH.size


def kind_of(message: bytes, *, sender: str) -> int:
    """Return the kind of a message.

    Raises:
        FrameError: it is none of ours.
    """
    if len(message) < _HEAD.size or message[:4] != _MAGIC:
        raise FrameError(sender, f"wanted a message of an aggregation, got {len(message)} bytes")
    return message[4]
