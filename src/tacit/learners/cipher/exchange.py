"""Ciphertexts and keys over a session: bytes of a known length, refused with the sender's name.

What learners on ciphertexts share besides: the ledger of what a published protocol shows, and
where a party keeps what it knows after a step.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from tacit.crypto.cipher import (
    CipherLayout,
    Ciphertext,
    Numbers,
    PublicKey,
    Scheme,
    SecretKey,
    load_public,
)
from tacit.crypto.cipher.contract import Residues
from tacit.crypto.field import Randomness
from tacit.errors import InputError, PartyError
from tacit.party import Fact, Session
from tacit.party.cost import CostedMessage, Round
from tacit.result import Leak, Phase

Floats = npt.NDArray[np.float64]
FOLLOWS = "all parties follow the protocol; ciphertexts are not checked"


class StepStore(Protocol):
    """Where a party keeps what it knows after every step, so that a work that was stopped goes on.

    Everyone begins after the same step; keys and ciphertexts are made anew.
    """

    start: int
    """The step after which this start goes on."""

    def begin(self) -> int:
        """Agree with all parties on the step after which to go on; 0 to start."""
        ...

    def load(self, step: int) -> Mapping[str, Floats | Numbers]:
        """Return what I kept after a step."""
        ...

    def save(self, step: int, kept: Mapping[str, Floats | Numbers]) -> None:
        """Keep what I know after a step."""
        ...


class MatchStore(StepStore, Protocol):
    """A store that can keep hidden matches as well, as its first step."""

    has_begun: bool
    """Whether this very job was begun here before."""
    places: Numbers | None
    """The rows as they were matched when the job began; for the helper which of them match."""

    def agree(self) -> None:
        """Agree with all parties on where to go on, and take up the matching."""
        ...

    def keep_places(self, places: Numbers) -> None:
        """Keep what came of the matching, before anything is learned."""
        ...


PART = Fact(
    tag="part",
    count=2,
    what="rows and columns of the part of {owner}",
    why="what is sent is sized by it",
)
KEY = Fact(
    tag="key size", count=1, what="how large the public key of {owner} is", why="it is read whole"
)
OUTPUTS = Fact(
    tag="outputs",
    count=1,
    what="how many numbers {owner} has decrypted under its mask, each time",
    why="what is sent is sized by it",
)
_CHUNK = 1 << 24
"""The most bytes in one message."""


def shown(to: str, what: str, elements: int) -> Leak:
    """Say for the ledger what the protocol shows."""
    why = "the published protocol shows it"
    return Leak(to=to, what=what, why=why, kind="protocol", elements=int(elements))


def messages(sender: str, receiver: str, size: int) -> Round:
    """Say in which messages `send_bytes` sends so many bytes."""
    sizes = (min(_CHUNK, size - at) for at in range(0, size, _CHUNK))
    return tuple(CostedMessage(sender, receiver, one) for one in sizes)


def send_bytes(
    session: Session, to: str, tag: str, data: bytes, *, phase: Phase = "online"
) -> None:
    """Send bytes in messages that a link carries."""
    for at in range(0, len(data), _CHUNK):
        part = torch.frombuffer(bytearray(data[at : at + _CHUNK]), dtype=torch.uint8)
        session.send(to, f"{tag}/{at}", part, phase=phase)


def recv_bytes(session: Session, sender: str, tag: str, size: int) -> bytes:
    """Receive so many bytes."""
    parts = []
    for at in range(0, size, _CHUNK):
        shape = (min(_CHUNK, size - at),)
        found = session.recv(sender, f"{tag}/{at}", shape, dtype=torch.uint8)
        parts.append(found.numpy().tobytes())
    return b"".join(parts)


def send_key(session: Session, to: str, key: PublicKey) -> None:
    """Send a public key, its length before it: before anything that a forecast counts."""
    data = key.to_bytes()
    session.publish(KEY, (len(data),), to=(to,))
    send_bytes(session, to, "setup/key", data, phase="setup")


def recv_key(session: Session, sender: str, scheme: Scheme) -> PublicKey:
    """Receive a public key, or say who sent none."""
    (size,) = session.learn(sender, KEY, to=(session.me,))
    if not 0 < size < 1 << 22:
        raise PartyError(sender, f"says that its key has {size} bytes")
    try:
        return load_public(scheme, recv_bytes(session, sender, "setup/key", size))
    except InputError as error:
        raise PartyError(sender, f"sent a key that is none: {error}") from error


def send_sealed(session: Session, to: str, tag: str, key: PublicKey, sealed: Ciphertext) -> None:
    """Send a ciphertext of a layout that the receiver knows."""
    send_bytes(session, to, tag, key.dump(sealed))


def recv_sealed(
    session: Session, sender: str, tag: str, key: PublicKey, layout: CipherLayout
) -> Ciphertext:
    """Receive a ciphertext of the agreed layout, or say who sent none."""
    data = recv_bytes(session, sender, tag, key.wire_bytes(layout))
    try:
        return key.load(data, layout)
    except InputError as error:
        raise PartyError(sender, f"sent a ciphertext that is none: {error}") from error


def ask_opening(
    session: Session, owner: str, key: PublicKey, result: Ciphertext, randomness: Randomness
) -> tuple[CipherLayout, Residues]:
    """Send a result to the key owner under a perfect mask; returns what `take_opening` wants."""
    sent, mask = key.mask(result, randomness)
    session.publish(OUTPUTS, (sent.layout.rows,), to=(owner,))
    send_sealed(session, owner, "masked", key, sent)
    return sent.layout, mask


def serve_opening(session: Session, asker: str, key: SecretKey, like: CipherLayout) -> None:
    """Decrypt a masked result of a layout like this one, with other rows, for whoever masked it."""
    (outputs,) = session.learn(asker, OUTPUTS, to=(session.me,))
    if not 0 < outputs <= 1 << 20:
        raise PartyError(asker, f"wants {outputs} numbers decrypted")
    layout = replace(like, rows=outputs, bound=like.room, form="released", by_owner=False)
    masked = recv_sealed(session, asker, "masked", key.public, layout)
    send_bytes(session, asker, "opened", key.open_masked(masked))


def take_opening(
    session: Session, owner: str, key: PublicKey, asked: tuple[CipherLayout, Residues]
) -> Numbers:
    """Receive what the key owner decrypted, and take the mask off."""
    layout, mask = asked
    data = recv_bytes(session, owner, "opened", key.opened_bytes(layout))
    try:
        return key.unmask(data, mask, layout)
    except InputError as error:
        raise PartyError(owner, f"decrypted something else: {error}") from error
