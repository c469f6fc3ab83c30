"""Before the first conversation: agree on the model, mask its weights once, hand out keys."""

import hashlib
import math
import threading
from dataclasses import astuple, dataclass, field, fields, replace
from time import monotonic

import torch
from torch import Tensor

from tacit.errors import ConfigError, FrameError
from tacit.llm.model.architecture import Architecture, LanguageModel
from tacit.llm.parties import Account, Allowance, Seats
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.fitting import fit_precision
from tacit.llm.permuted.geometry import KvCache
from tacit.llm.permuted.precision import Precision
from tacit.llm.permuted.weights import (
    DrawnMask,
    RingModel,
    Weights,
    drawn_masks,
    encode_model,
    matrices,
)
from tacit.party import Fact, Session
from tacit.ring import KEY_BYTES, Prg, panel_rows

_DIGEST_BYTES = 32
PRECISION = Fact(
    tag="precision",
    count=len(fields(Precision)),
    what="how far the values of the model go, as six powers of two",
    why="both sides must know how many bits a value needs",
    elements=6,
    kind="protocol",
)
MASKED = Fact(
    tag="masked",
    count=1,
    what="whether {owner} has the masked weights already",
    why="they travel once",
)
_PART_BYTES = 32 << 20
"""Of a matrix, in one message."""
KEPT_BYTES = 1 << 30
"""Masks of weights that a dealer keeps in host memory; others it draws for every batch."""


@dataclass(eq=False)
class KeptConversation:
    """What the owner keeps of one conversation, so that it can go on in another session."""

    key: bytes
    cached: KvCache
    last_batch: int = -1
    is_open: bool = True
    holder: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_over(self) -> int:
        """Make whoever calls this the only one that the conversation goes on with."""
        with self.lock:
            self.holder += 1
            return self.holder

    def take_batch(self, number: int, *, holder: int, user: str) -> None:
        """Use a batch's number, once and only here: its masks follow from it.

        Raises:
            FrameError: it was used before, or the conversation goes on elsewhere.
        """
        with self.lock:
            if holder != self.holder:
                raise FrameError(user, "opened this conversation again; it goes on there")
            if number <= self.last_batch:
                raise FrameError(user, f"made batch {number} twice; masks are used once")
            self.last_batch = number


@dataclass(eq=False)
class OwnerVault:
    """What the owner keeps for one user between sessions: encoded model, mask key, caches.

    Of the conversations that are not open, the ``most_closed`` that were used last are kept, fewer
    if the user's account has no room for them. A vault serves one session at a time, and one user:
    `for_user` makes the next one.
    """

    ring: RingModel
    key: bytes
    weights: Weights
    conversations: dict[int, KeptConversation] = field(default_factory=dict)
    most_closed: int = 16
    counts: bool = False
    allowance: Allowance = field(default_factory=Allowance)
    account: Account = field(default_factory=Account)
    left_at: float | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def architecture(self) -> Architecture:
        """Return the shape of the model."""
        return self.ring.architecture

    @property
    def plan(self) -> Blueprint:
        """Return the steps of the model."""
        ring = self.ring
        return Blueprint(ring.architecture, ring.precision, self.weights.device, self.counts)

    def for_user(self, account: Account | None = None) -> "OwnerVault":
        """Return a vault of the same model for another user, with nothing in common but the model.

        Guarantee: its mask key is drawn anew, so the key that one user's dealer knows says nothing
        about the masks of another user's weights.
        """
        return replace(
            self,
            key=Prg.from_os().bytes(KEY_BYTES),
            conversations={},
            account=account or Account(),
            left_at=None,
            lock=threading.RLock(),
        )

    def keep(self, number: int, kept: KeptConversation) -> None:
        """Open a conversation, new or kept, and forget those that were closed longest ago."""
        with self.lock:
            self.conversations.pop(number, None)
            kept.is_open = True
            self.conversations[number] = kept
            closed = self._closed()
            for old in closed[: max(0, len(closed) - self.most_closed)]:
                self._drop(old)

    def charge(self, nbytes: int, *, user: str) -> None:
        """Count bytes of this user; what it has closed makes room.

        Raises:
            FrameError: there is no room.
        """
        with self.lock:
            for old in self._closed():
                if self.account.fits(nbytes):
                    break
                self._drop(old)
            self.account.take(nbytes, user=user)

    def begin(self) -> None:
        """Note that a session begins."""
        self.left_at = None

    def end(self) -> None:
        """Note that a session has ended, in whatever way: none of its conversations is open."""
        with self.lock:
            self.left_at = monotonic()
            for kept in self.conversations.values():
                kept.is_open = False

    def sweep(self) -> None:
        """Forget the conversations of a session that ended too long ago to be taken up again."""
        with self.lock:
            if self.left_at is not None and monotonic() - self.left_at > self.allowance.keep_s:
                self.forget()

    def forget(self) -> None:
        """Forget all conversations that are not open."""
        with self.lock:
            for old in self._closed():
                self._drop(old)

    def _closed(self) -> list[int]:
        return [number for number, one in self.conversations.items() if not one.is_open]

    def _drop(self, number: int) -> None:
        self.account.give(self.conversations.pop(number).cached.nbytes)

    def fingerprint(self) -> bytes:
        """Name this masking: the user asks for the masked weights only if they are new to it."""
        return hashlib.sha256(b"tacit masked weights" + self.key).digest()


def open_vault(
    model: LanguageModel,
    *,
    precision: Precision | None = None,
    device: torch.device | str = "cpu",
    counts: bool = False,
) -> OwnerVault:
    """Encode a model for private use, with a fresh mask key from the operating system.

    Without a precision, the finest that the model's values leave room for; users and the dealer
    are told. With ``counts`` users are shown which scores belong to tokens that came before, which
    a repetition penalty needs. The vault is for one user; `OwnerVault.for_user` makes another
    without encoding the model again.

    Guarantee: the key leaves the owner only towards the dealer of that user.
    Cost: 4 bytes of memory per weight on a CPU, as a rule; the model is read a layer at a time.
    """
    ring = encode_model(model, precision or fit_precision(model))
    return OwnerVault(
        ring=ring,
        key=Prg.from_os().bytes(KEY_BYTES),
        weights=Weights(ring.words, device),
        counts=counts,
    )


@dataclass(frozen=True, eq=False)
class MaskedWeights:
    """What the user holds of the weights, W − U, for as many sessions as it likes."""

    fingerprint: bytes
    weights: Weights


def publish_precision(session: Session, precision: Precision) -> None:
    """Tell everyone how many bits values have, as the owner. Cost: 104 bytes to each, once."""
    session.publish(PRECISION, astuple(precision))


def learn_precision(session: Session, owner: str) -> Precision:
    """Receive how many bits values have.

    Raises:
        FrameError: no words could be laid out like that.
    """
    names = [field.name for field in fields(Precision)]
    bits = session.learn(owner, PRECISION)
    try:
        return Precision(**dict(zip(names, bits, strict=True)))
    except ConfigError as error:
        raise FrameError(owner, f"announces a precision that cannot be: {error}") from error


def agree_on(
    session: Session, architecture: Architecture, precision: Precision, *, counts: bool
) -> None:
    """Make sure that all three parties speak of the same model at the same precision."""
    text = f"{architecture!r} {precision!r} {counts}"
    session.agree("model", hashlib.sha256(text.encode()).digest())


def give_weights(session: Session, seats: Seats, vault: OwnerVault) -> None:
    """Give the dealer the mask key, and the user W − U unless it has it.

    Guarantee: W − U is uniform to the user, who does not have the key.
    Cost: once per model, 8 bytes per weight to the user, 16 bytes to the dealer.
    """
    session.send(seats.dealer, "setup/masks", _octets(vault.key), phase="setup")
    session.send(seats.user, "setup/masking", _octets(vault.fingerprint()), phase="setup")
    if session.learn(seats.user, MASKED, to=(seats.owner,))[0]:
        return
    masks = drawn_masks(vault.ring.architecture, vault.key)
    with session.progress.stage("mask weights", len(masks)) as advance:
        for number, (name, mask) in enumerate(masks.items()):
            words, at = vault.ring.words[name], 0
            for part, rows in enumerate(mask.panels(_PART_BYTES)):
                masked = rows.neg_().add_(words[at : at + len(rows)])
                session.send(seats.user, f"setup/w{number}.{part}", masked, phase="setup")
                at += len(rows)
            advance(number + 1)


def take_weights(
    session: Session,
    seats: Seats,
    architecture: Architecture,
    known: MaskedWeights | None,
    device: torch.device | str,
) -> MaskedWeights:
    """Receive W − U, unless ``known`` is it."""
    got = session.recv(seats.owner, "setup/masking", (_DIGEST_BYTES,), dtype=torch.uint8)
    fingerprint = bytes(got.tolist())
    is_known = known is not None and known.fingerprint == fingerprint
    session.publish(MASKED, (int(is_known),), to=(seats.owner,))
    if known is not None and is_known:
        return known
    words: dict[str, Tensor] = {}
    wanted = matrices(architecture)
    with session.progress.stage("receive masked weights", len(wanted)) as advance:
        for number, matrix in enumerate(wanted):
            words[matrix.name] = _receive(session, seats.owner, number, matrix.shape)
            advance(number + 1)
    return MaskedWeights(fingerprint, Weights(words, device))


def _receive(session: Session, owner: str, number: int, shape: tuple[int, int]) -> Tensor:
    """Receive a matrix in its parts, each into its place."""
    sizes = panel_rows(shape, _PART_BYTES)
    if len(sizes) == 1:
        return session.recv(owner, f"setup/w{number}.0", shape)
    words, at = torch.empty(shape, dtype=torch.int64), 0
    for part, rows in enumerate(sizes):
        words[at : at + rows] = session.recv(owner, f"setup/w{number}.{part}", (rows, shape[1]))
        at += rows
    return words


@dataclass(frozen=True, eq=False)
class DealerMasks:
    """What the dealer keeps between sessions: U, and the key that it was drawn from."""

    key: bytes
    weights: Weights


def take_masks(
    session: Session,
    seats: Seats,
    architecture: Architecture,
    known: DealerMasks | None,
    device: torch.device | str,
) -> Weights:
    """Draw U as the dealer, from the owner's key, unless ``known`` is it.

    On a CPU as much of it as `KEPT_BYTES` holds; the rest is drawn for every batch.
    """
    key = recv_key(session, seats.owner, "setup/masks")
    if known is not None and known.key == key:
        return known.weights
    words: dict[str, Tensor | DrawnMask] = {}
    masks = drawn_masks(architecture, key)
    room = KEPT_BYTES if torch.device(device).type == "cpu" else math.inf
    with session.progress.stage("draw masks", len(masks)) as advance:
        for name, mask in masks.items():
            is_kept = mask.nbytes <= room
            words[name] = mask.words() if is_kept else mask
            room -= mask.nbytes if is_kept else 0
            advance(len(words))
    return Weights(words, device)


def send_key(session: Session, to: str, tag: str, key: bytes) -> None:
    """Send a key on an authenticated link."""
    session.send(to, tag, _octets(key), phase="setup")


def recv_key(session: Session, sender: str, tag: str) -> bytes:
    """Receive a key."""
    return bytes(session.recv(sender, tag, (KEY_BYTES,), dtype=torch.uint8).tolist())


def _octets(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
