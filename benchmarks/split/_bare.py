"""A plain loop of two processes: the same arithmetic, the same bytes over TLS, nothing else.

No frames, no checks, no meter, no defences, one model: what a split step costs before anyone has
made a library of it. Waits are spent awake, and rows are gathered while the peer works.
"""

import select
import socket
import ssl
import time
from typing import Any

import torch
from torch import Tensor, nn

from tacit.crypto import Identity
from tacit.split import TrainingPace
from tacit.split.stepping import make_optimiser


class Wire:
    """A TLS socket that is read without sleeping."""

    def __init__(self, sock: socket.socket, identity: Identity, *, is_server: bool) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(identity.certificate_file, identity.key_file)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = context.wrap_socket(sock, server_side=is_server)
        self._poll = select.poll()
        self._poll.register(self._sock, select.POLLIN)

    def send(self, values: Tensor) -> None:
        """Send float32 values."""
        self._sock.sendall(values.detach().view(-1).numpy().data.cast("B"))

    def receive(self, shape: torch.Size) -> Tensor:
        """Receive float32 values."""
        buffer = bytearray(4 * shape.numel())
        view, filled = memoryview(buffer), 0
        while filled < len(view):
            while not (self._sock.pending() or self._poll.poll(0)):
                pass
            filled += self._sock.recv_into(view[filled:])
        return torch.frombuffer(buffer, dtype=torch.float32).view(shape)


def train_bottom(wire: Wire, bottom: nn.Module, x: Tensor, *, batch: int) -> float:
    """Train the feature owner's part and return the seconds."""
    optimiser, order = make_optimiser(bottom, TrainingPace()), torch.arange(len(x)).split(batch)
    began, inputs = time.monotonic(), x.index_select(0, order[0])
    for following in (*order[1:], order[0]):
        h: Any = bottom(inputs)  # a module may return anything
        wire.send(h)
        inputs = x.index_select(0, following)
        optimiser.zero_grad(set_to_none=True)
        h.backward(wire.receive(h.shape))
        optimiser.step()
    return time.monotonic() - began


def train_top(wire: Wire, top: nn.Module, y: Tensor, *, batch: int, width: int) -> float:
    """Train the label owner's part and return the seconds."""
    optimiser, began = make_optimiser(top, TrainingPace()), time.monotonic()
    for wanted in y.split(batch):
        optimiser.zero_grad(set_to_none=True)
        h = wire.receive(torch.Size((len(wanted), width))).requires_grad_()
        nn.functional.cross_entropy(top(h), wanted).backward()
        if h.grad is not None:
            wire.send(h.grad)
        optimiser.step()
    return time.monotonic() - began
