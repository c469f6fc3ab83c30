"""What two parties need to make randomness with each other: messages, transfers, lattice keys.

Transfers go both ways: where P0 is the sender, its Δ is that of its garbled circuits as well.
"""

import hashlib
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tacit.crypto.joint import lattice, transfer
from tacit.crypto.joint.garbling import Evaluator, Garbler
from tacit.crypto.joint.loops import Octets, Words
from tacit.crypto.joint.transfer import Hash
from tacit.errors import DataError, FrameError
from tacit.mpc import narrow
from tacit.mpc.contract import Roles
from tacit.mpc.share import Party
from tacit.party import Session
from tacit.party.cost import CostedMessage, Round, exchange
from tacit.ring import Prg

KEY_BYTES = lattice.FRESH_BYTES + lattice.SEED_BYTES


def setup_rounds(roles: Roles, *, transfers: bool, keys: Set[Party]) -> tuple[Round, ...]:
    """Declare what is sent once in a run: for transfers, and the keys of some parties."""
    rounds: list[Round] = []
    if transfers:
        rounds += [
            exchange(*roles.computing, transfer.OFFER_BYTES),
            exchange(*roles.computing, transfer.CHOICES_BYTES),
        ]
    if "first" in keys:
        rounds.append((CostedMessage(roles.first, roles.second, KEY_BYTES),))
    if "second" in keys:
        rounds.append((CostedMessage(roles.second, roles.first, KEY_BYTES),))
    return tuple(rounds)


class Pair:
    """One party's end of everything that is made together, in one run.

    Guarantee: against parties that follow the protocol; see `tacit.crypto.joint`.
    """

    def __init__(self, session: Session, roles: Roles, *, run: int, own: Prg) -> None:
        self._session, self._run = session, run
        self.is_first = session.me == roles.first
        self._other = roles.second if self.is_first else roles.first
        self._own = own
        self._sent = self._received = 0

    def draw(self, label: str) -> Prg:
        """Fork my own generator."""
        return self._own.fork(label)

    def send(self, values: Tensor) -> None:
        """Send the next message, before any input is touched."""
        tag = f"joint/{self._run}.{self._sent}"
        self._session.send(self._other, tag, values, phase="offline")
        self._sent += 1

    def recv(self, shape: tuple[int, ...], *, dtype: torch.dtype = torch.uint8) -> Tensor:
        """Receive the next message."""
        tag = f"joint/{self._run}.{self._received}"
        self._received += 1
        return self._session.recv(self._other, tag, shape, dtype=dtype)

    def send_octets(self, *parts: np.ndarray | bytes) -> None:
        """Send arrays and bytes, one after another."""
        flat = [
            np.frombuffer(bytearray(part), np.uint8)
            if isinstance(part, bytes)
            else np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            for part in parts
        ]
        self.send(torch.from_numpy(flat[0] if len(flat) == 1 else np.concatenate(flat)))

    def recv_octets(self, size: int) -> Octets:
        """Receive so many bytes."""
        found: Octets = self.recv((size,)).numpy()
        return found

    @contextmanager
    def naming_the_peer(self) -> Iterator[None]:
        """Name the peer where one of its messages turns out to be malformed."""
        try:
            yield
        except DataError as error:
            raise FrameError(self._other, str(error)) from error

    def set_up(self, *, transfers: bool, keys: Set[Party]) -> None:
        """Do what is done once in a run."""
        me: Party = "first" if self.is_first else "second"
        with self.naming_the_peer():
            if transfers:
                self._set_up_transfers()
            for owner in sorted(keys):
                if owner == me:
                    self._make_key()
                else:
                    self._take_key()

    def _set_up_transfers(self) -> None:
        sender = transfer.BaseSender()
        self.send_octets(sender.offer())
        offer = self.recv_octets(transfer.OFFER_BYTES).tobytes()
        delta = transfer.draw_delta(self.draw("delta").bytes)
        receiver = transfer.BaseReceiver(delta, offer)
        self.send_octets(receiver.choices)
        choices = self.recv_octets(transfer.CHOICES_BYTES).tobytes()
        sends = Hash(_key(offer, receiver.choices))
        gets = Hash(_key(sender.offer(), choices))
        self.sender = transfer.Sender(delta, receiver.seeds, sends)
        self.receiver = transfer.Receiver(sender.seeds(choices), gets)
        self.garbler, self.evaluator = Garbler(self.sender.delta, sends), Evaluator(gets)

    def _make_key(self) -> None:
        self.key = lattice.LatticeKey(self.draw("lattice").bytes)
        self.send_octets(self.key.public, self.key.public_seed)

    def _take_key(self) -> None:
        data = self.recv_octets(KEY_BYTES)
        public = data[: lattice.FRESH_BYTES].view(np.uint32)
        shape = (1, lattice.PRIMES, lattice.DEGREE)
        seed = data[lattice.FRESH_BYTES :].tobytes()
        self.products = lattice.Products(public.reshape(shape), seed)

    @cached_property
    def masks(self) -> Prg:
        """Return what draws my masks of products."""
        return self.draw("masks")

    @cached_property
    def noise(self) -> Callable[[int], bytes]:
        """Return what draws the noise of ciphertexts."""
        return self.draw("noise").bytes

    def correlate_as_sender(self, values: Words, size: int = 8) -> Words:
        """Give my shares of b·v for my values (width, n) and the receiver's bits b, additive."""
        width, count = values.shape
        zero, one = self.sender.pads(self.extend_as_sender(count), width)
        self.send(narrow.cut(_tensor(values + zero - one), size))
        return np.uint64(0) - zero

    def correlate_as_receiver(self, bits: Octets, width: int, size: int = 8) -> Words:
        """Give my shares of b·v for my bits (n,) and the sender's values; modulo 2^(8·size)."""
        pads = self.receiver.pads(self.extend_as_receiver(bits), width)
        shape, dtype = narrow.wire(pads.size, size)
        sent = narrow.uncut(self.recv(shape, dtype=dtype), size)
        chosen = sent.numpy().view(np.uint64).reshape(pads.shape)
        return pads + chosen * bits.astype(np.uint64)

    def extend_as_sender(self, count: int) -> Words:
        """Make so many correlations, of which the receiver has chosen the bits."""
        columns = self.recv_octets(transfer.column_bytes(count))
        return self.sender.extend(columns.reshape(transfer.BASE, -1), count)

    def extend_as_receiver(self, bits: Octets) -> Words:
        """Make correlations by my bits."""
        columns, blocks = self.receiver.extend(bits)
        self.send_octets(columns)
        return blocks


def correlation_rounds(
    sender: str, receiver: str, count: int, width: int, size: int = 8
) -> tuple[Round, ...]:
    """Declare what `Pair.correlate_as_sender` and its other side send."""
    return (
        (CostedMessage(receiver, sender, transfer.column_bytes(count)),),
        (CostedMessage(sender, receiver, width * count * size),),
    )


def _key(offer: bytes, choices: bytes) -> bytes:
    return hashlib.sha256(b"tacit garbling key\0" + offer + choices).digest()[:16]


def _tensor(words: Words) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(words).reshape(-1).view(np.int64))
