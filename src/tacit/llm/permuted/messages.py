"""Several tensors in one message, and the talk of the two computing parties."""

from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor

from tacit.llm.permuted.narrow import Item, join, split, sum_bytes
from tacit.party import Session

_TURNS = 4


def send_packed(
    session: Session, to: str, tag: str, parts: Sequence[Tensor], items: Sequence[Item]
) -> None:
    """Send tensors laid end to end, in the offline phase; words cut to their item's bytes."""
    session.send(to, tag, join(parts, items).cpu(), phase="offline")


def recv_packed(
    session: Session, sender: str, tag: str, items: Sequence[Item], device: torch.device
) -> list[Tensor]:
    """Receive a packed message whose items are known, and take it apart on the device."""
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
        self._put(join(parts, items))

    def send_bytes(self, octets: Tensor) -> None:
        """Send bytes in one message."""
        self._put(octets)

    send_octets = send_bytes

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

    def _put(self, values: Tensor) -> None:
        self._session.send(self._peer, self._tag, self._staging.fetch(values))
        self.flush()

    def flush(self) -> None:
        """Do now what was put off until something more urgent was sent."""
        if self.after_send is not None:
            then, self.after_send = self.after_send, None
            then()
