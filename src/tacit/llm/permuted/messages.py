"""Several tensors in one packed message, and the talk of the two computing parties.

Ring words may have fewer than eight bytes: reducing both shares modulo 2^(8·n) reduces the value,
exactly, and one that fits n bytes survives. The bytes of a row lie in planes, the lowest four of
all words first, then two, then one: a plane is one cast, where picking bytes out of every word is
many small copies. Tags begin with a word and the number of the conversation: `run0/next`.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, final

import torch
from torch import Tensor

from tacit.party import Session

WORD_BYTES = 8
_PLANES = {4: torch.int32, 2: torch.int16, 1: torch.uint8}


RUN, STEP, NAME, CLOSE = range(4)
"""Commands to the owner: run a prompt; step on from the chosen place; name its token; end."""

COMMAND_BYTES = 32


class Item(NamedTuple):
    """A tensor in a message: its shape, and the bytes of its words (0 for plain bytes)."""

    shape: tuple[int, ...]
    nbytes: int = WORD_BYTES

    @property
    def size(self) -> int:
        """Return its bytes."""
        return prod(self.shape) * (self.nbytes or 1)


def sum_bytes(items: Sequence[Item]) -> int:
    """Return the bytes of several items."""
    return sum(item.size for item in items)


def join(parts: Sequence[Tensor], items: Sequence[Item]) -> Tensor:
    """Lay tensors end to end, words cut to the bytes of their items."""
    octets = [
        pack(part.reshape(-1), item.nbytes) if item.nbytes else part.reshape(-1)
        for part, item in zip(parts, items, strict=True)
    ]
    return octets[0] if len(octets) == 1 else torch.cat(octets)


def split(octets: Tensor, items: Sequence[Item]) -> list[Tensor]:
    """Undo `join`."""
    parts = octets.split_with_sizes([item.size for item in items])
    return [
        (unpack(part, item.nbytes) if item.nbytes else part).view(item.shape)
        for part, item in zip(parts, items, strict=True)
    ]


def pack(words: Tensor, nbytes: int) -> Tensor:
    """Keep the lowest bytes of words (…, n), as uint8 of shape (…, n · nbytes)."""
    if nbytes == WORD_BYTES:
        return words.contiguous().view(torch.uint8)
    planes = [
        (words >> at if at else words).to(_PLANES[size]).view(torch.uint8)
        for at, size in _planes(nbytes)
    ]
    return planes[0] if len(planes) == 1 else torch.cat(planes, -1)


def unpack(octets: Tensor, nbytes: int) -> Tensor:
    """Undo `pack`, taking the highest kept bit for the sign."""
    if nbytes == WORD_BYTES:
        return _plane(octets, torch.int64)
    width, out = octets.shape[-1] // nbytes, None
    for at, size in _planes(nbytes):
        first = at // 8 * width
        plane = _plane(octets[..., first : first + size * width], _PLANES[size])
        words = plane.to(torch.int64)
        if at + 8 * size < 8 * nbytes and size > 1:  # only the highest plane has the sign
            words &= (1 << (8 * size)) - 1
        out = words if out is None else out.bitwise_or_(words.bitwise_left_shift_(at))
    assert out is not None  # noqa: S101 - words have at least one byte
    return wrap(out, nbytes) if nbytes & 1 else out  # a plane of single bytes has no sign


def encode(values: Tensor, frac_bits: int) -> Tensor:
    """Encode doubles that are known to be finite and in range, without asking the device."""
    return (values * 2.0**frac_bits).round_().to(torch.int64)


def wrap(words: Tensor, nbytes: int) -> Tensor:
    """Reduce words to the signed range of ``nbytes`` bytes."""
    if nbytes == WORD_BYTES:
        return words
    if nbytes == 4:
        return words.to(torch.int32).to(torch.int64)
    shift = 8 * (WORD_BYTES - nbytes)
    return (words << shift).bitwise_right_shift_(shift)


def _planes(nbytes: int) -> list[tuple[int, int]]:
    """List the planes of a word: the bit at which each starts, and its bytes."""
    out, at = [], 0
    for size in _PLANES:
        if nbytes & size:
            out.append((at, size))
            at += 8 * size
    return out


def _plane(octets: Tensor, dtype: torch.dtype) -> Tensor:
    """Look at bytes (…, n) as numbers, which must start at a multiple of their size."""
    flat = octets.reshape(-1)
    if flat.storage_offset() % WORD_BYTES:
        flat = flat.clone()
    return flat.view(dtype).view(*octets.shape[:-1], -1)


_TURNS = 4


def send_packed(
    session: Session, to: str, tag: str, parts: Sequence[Tensor], items: Sequence[Item]
) -> None:
    """Send tensors laid end to end, if any, in the offline phase; cut to their item's bytes."""
    if items:
        session.send(to, tag, join(parts, items).cpu(), phase="offline")


def recv_packed(
    session: Session, sender: str, tag: str, items: Sequence[Item], device: torch.device
) -> list[Tensor]:
    """Receive a packed message whose items are known, and take it apart on the device."""
    if not items:
        return []
    data = session.recv(sender, tag, (sum_bytes(items),), dtype=torch.uint8)
    return split(data.to(device), items)


@final
class _Staging:
    """Host memory that a device copies to quickly, in turn.

    Whoever sends waits for an answer before it sends again, so a message has been taken long
    before its memory is written again.
    """

    def __init__(self) -> None:
        self._turns: list[Tensor] = []
        self._count = 0

    def fetch(self, values: Tensor) -> Tensor:
        """Return values on the host, once they are there."""
        if not values.is_cuda:
            return values.contiguous()
        if len(self._turns) < _TURNS:
            self._turns.append(torch.empty(0, dtype=torch.uint8))
        turn = self._count % _TURNS
        self._count += 1
        if self._turns[turn].numel() < values.numel():
            self._turns[turn] = torch.empty(2 * values.numel(), dtype=torch.uint8).pin_memory()
        out = self._turns[turn][: values.numel()].view(values.shape)
        out.copy_(values, non_blocking=True)
        torch.cuda.current_stream(values.device).synchronize()
        return out


@final
class Channel:
    """The online messages between owner and user in one conversation, on this end's device."""

    def __init__(self, session: Session, peer: str, name: str, device: torch.device) -> None:
        self._session = session
        self._device = device
        self._peer = peer
        self._tag = f"{name}/data"
        self._staging = _Staging()
        self.after_send: Callable[[], None] | None = None

    def send(self, items: Sequence[Item], *parts: Tensor) -> None:
        """Send words laid end to end in one message."""
        self.send_bytes(join(parts, items))

    def send_bytes(self, octets: Tensor) -> None:
        """Send bytes in one message."""
        self._session.send(self._peer, self._tag, self._staging.fetch(octets))
        self.flush()

    def recv(self, items: Sequence[Item]) -> list[Tensor]:
        """Receive one message of words and take it apart."""
        shape = (sum_bytes(items),)
        octets = self._session.recv(self._peer, self._tag, shape, dtype=torch.uint8)
        return split(octets.to(self._device), items)

    def recv_bytes(self, rows: int, width: int) -> Tensor:
        """Receive one message of bytes."""
        shape = (rows, width)
        octets = self._session.recv(self._peer, self._tag, shape, dtype=torch.uint8)
        return octets.to(self._device)

    def recv_octets(self, size: int) -> Tensor:
        """Receive one message of bytes that have no rows."""
        octets = self._session.recv(self._peer, self._tag, (size,), dtype=torch.uint8)
        return octets.to(self._device, non_blocking=True)

    def recv_into(self, target: Tensor, shape: tuple[int, ...]) -> None:
        """Receive one message of bytes into memory of this end's device."""
        octets = self._session.recv(self._peer, self._tag, shape, dtype=torch.uint8).view(-1)
        target[: len(octets)].copy_(octets, non_blocking=True)

    def flush(self) -> None:
        """Do now what was put off until something more urgent was sent."""
        if self.after_send is not None:
            then, self.after_send = self.after_send, None
            then()
