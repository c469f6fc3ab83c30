"""Capture what a party computes between messages, once, and play it for every token.

A pass has no choices that depend on values: the same kernels run on the same memory, and only what
they read there differs. So its launches are recorded as CUDA graphs, one between two messages.
"""

import threading
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor

from tacit.llm.permuted.messages import Channel

_ONE_AT_A_TIME = threading.Lock()  # what one thread records, another's recording may not disturb


class MessageSize(NamedTuple):
    """The bytes of a message: some, and more for every token of the text."""

    fixed: int
    each: int = 0
    is_row: bool = False

    def at(self, tokens: int) -> int:
        """Return the bytes at a length of text."""
        return self.fixed + self.each * tokens


class MessageLink(Protocol):
    """Where a pass sends its messages, and takes others from."""

    def empty(self, size: int) -> Tensor:
        """Return memory for a message."""
        ...

    def send(self, octets: Tensor, size: MessageSize) -> None:
        """Send the first bytes, as many as the size says."""
        ...

    def recv(self, size: MessageSize) -> Tensor:
        """Receive a message, in memory that may be longer."""
        ...


@final
class Live:
    """Send and receive at once: a pass without a record."""

    def __init__(self, channel: Channel, tokens: int, device: torch.device) -> None:
        self._channel, self._tokens, self._device = channel, tokens, device

    def empty(self, size: int) -> Tensor:
        """Return memory for a message."""
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def send(self, octets: Tensor, size: MessageSize) -> None:
        """Send a message."""
        octets = octets[: size.at(self._tokens)]
        self._channel.send_bytes(octets.view(1, -1) if size.is_row else octets)

    def recv(self, size: MessageSize) -> Tensor:
        """Receive a message."""
        count = size.at(self._tokens)
        if size.is_row:
            return self._channel.recv_bytes(1, count).view(-1)
        return self._channel.recv_octets(count)


@final
class Mute:
    """A link that leads nowhere: a pass on it only compiles its kernels."""

    def __init__(self, most: int, device: torch.device) -> None:
        self._inbox = torch.zeros(most, dtype=torch.uint8, device=device)

    def empty(self, size: int) -> Tensor:
        """Return memory for a message."""
        return torch.empty(size, dtype=torch.uint8, device=self._inbox.device)

    def send(self, octets: Tensor, size: MessageSize) -> None:
        """Send nothing."""

    def recv(self, size: MessageSize) -> Tensor:
        """Return what nobody sent."""
        return self._inbox


class _Step(NamedTuple):
    """What was recorded up to a message, and the message, to be sent or taken."""

    graph: torch.cuda.CUDAGraph | None
    octets: Tensor | None
    size: MessageSize
    is_sent: bool


@final
class Capture:
    """A pass, recorded: be the link of the pass that is recorded, then `play` it.

    Between a message that is sent and the next that is taken, a pass must not compute.
    """

    def __init__(self, device: torch.device, room: int) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graph: torch.cuda.CUDAGraph | None = None
        self._steps: list[_Step] = []
        self._inbox = torch.empty(room, dtype=torch.uint8, device=device)
        self._context = torch.cuda.stream(self._stream)

    def __enter__(self) -> "Capture":
        _ONE_AT_A_TIME.acquire()
        torch.cuda.current_stream(self._device).synchronize()
        self._context.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        try:
            if self._graph is not None:
                self._end(None, MessageSize(0), is_sent=False)
        finally:
            self._context.__exit__(*error)
            _ONE_AT_A_TIME.release()

    def empty(self, size: int) -> Tensor:
        """Return memory for a message; it is kept, so that nothing else is written there."""
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def begin(self) -> None:
        """Capture from here: a pass that computes before its first message says so."""
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def send(self, octets: Tensor, size: MessageSize) -> None:
        """Note that a message leaves here."""
        self._end(octets, size, is_sent=True)

    def recv(self, size: MessageSize) -> Tensor:
        """Note that a message is wanted here."""
        self._steps.append(_Step(None, None, size, is_sent=False))
        self.begin()
        return self._inbox

    def _end(self, octets: Tensor | None, size: MessageSize, *, is_sent: bool) -> None:
        assert self._graph is not None  # noqa: S101 - a pass computes what it sends
        self._graph.capture_end()
        self._steps.append(_Step(self._graph, octets, size, is_sent=is_sent))
        self._graph = None

    def replay(self, channel: Channel, tokens: int) -> None:
        """Run the pass again, on what lies in its memory now."""
        for graph, octets, size, is_sent in self._steps:
            if graph is not None:
                graph.replay()
            count = size.at(tokens)
            if is_sent and octets is not None:
                octets = octets[:count]
                channel.send_bytes(octets.view(1, -1) if size.is_row else octets)
            elif graph is None:
                channel.recv_into(self._inbox, (1, count) if size.is_row else (count,))
