"""Several tensors in one message, and the talk of the two computing parties."""

from collections.abc import Callable, Sequence
from math import prod
from typing import final

import torch
from torch import Tensor

from tacit.llm.private.blueprint import Item
from tacit.llm.private.narrow import pack, unpack
from tacit.party import Session


def parcel_bytes(items: Sequence[Item]) -> int:
    """Return the payload of a parcel."""
    return sum(prod(item.shape) * (item.nbytes or 1) for item in items)


def send_parcel(
    session: Session, to: str, tag: str, parts: Sequence[Tensor], items: Sequence[Item]
) -> None:
    """Send tensors laid end to end, in the offline phase; words cut to their item's bytes."""
    octets = [
        (pack(part, item.nbytes) if item.nbytes else part).reshape(-1)
        for part, item in zip(parts, items, strict=True)
    ]
    session.send(to, tag, torch.cat(octets), phase="offline")


def recv_parcel(session: Session, sender: str, tag: str, items: Sequence[Item]) -> list[Tensor]:
    """Receive a parcel whose items are known, and take it apart."""
    data = session.recv(sender, tag, (parcel_bytes(items),), dtype=torch.uint8)
    out, at = [], 0
    for item in items:
        width = item.nbytes or 1
        size = prod(item.shape) * width
        part = data[at : at + size]
        at += size
        if item.nbytes:
            out.append(unpack(part.view(*item.shape, width), width))
        else:
            out.append(part.view(item.shape))
    return out


@final
class Channel:
    """The online messages between owner and user in one conversation."""

    def __init__(self, session: Session, peer: str, name: str) -> None:
        self._session = session
        self._peer = peer
        self._tag = f"{name}/data"
        self.after_send: Callable[[], None] | None = None

    def send(self, *parts: Tensor) -> None:
        """Send words laid end to end in one message."""
        words = [part.reshape(-1) for part in parts]
        self._put(torch.cat(words) if len(words) > 1 else words[0])

    def send_bytes(self, octets: Tensor) -> None:
        """Send bytes in one message."""
        self._put(octets)

    def recv(self, *shapes: tuple[int, ...]) -> list[Tensor]:
        """Receive one message of words and take it apart."""
        sizes = [prod(shape) for shape in shapes]
        words = self._session.recv(self._peer, self._tag, (sum(sizes),))
        return [
            part.view(shape)
            for part, shape in zip(words.split_with_sizes(sizes), shapes, strict=True)
        ]

    def recv_bytes(self, rows: int, width: int) -> Tensor:
        """Receive one message of bytes."""
        return self._session.recv(self._peer, self._tag, (rows, width), dtype=torch.uint8)

    def _put(self, values: Tensor) -> None:
        self._session.send(self._peer, self._tag, values)
        self.flush()

    def flush(self) -> None:
        """Do now what was put off until something more urgent was sent."""
        if self.after_send is not None:
            then, self.after_send = self.after_send, None
            then()
