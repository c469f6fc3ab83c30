"""Our TLS links beside bare Python TLS sockets: two processes over loopback, one run.

``echo``: a message goes there and comes back; ``stream``: messages go one way, then one answer.
A ping-pong of small messages depends on where the scheduler puts the two processes: on one core
they take turns, on two they wake each other. So it is also measured with both pinned.
"""

import atexit
import datetime
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Protocol

import numpy as np
from bench import Case, InlinePeer, as_program
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.transport import Credentials, Meter, Peer, fingerprint, frame_bytes, listen, mesh

COMMAND = struct.Struct("<QQQ")
STOP, ECHO, STREAM = 0, 1, 2
ECHO_SIZES = (64, 4096, 65536, 1 << 20, 8 << 20, 64 << 20)
MIB = 1 << 20


def cases(quick: bool) -> list[Case]:
    """Return latency, throughput and growth with size."""
    ours, bare = _Lazy(_OurPipe), _Lazy(_BarePipe)
    found = [_echo_case(size, ours, bare, quick=quick) for size in ECHO_SIZES]
    for cores in (1, 2) if len(_cores()) > 1 else ():
        found.append(_echo_case(64, ours, bare, quick=quick, pinned=cores))
    for size in (64 << 10, 8 << 20):
        found.append(_stream_case(size, ours, bare, quick=quick))
    return found


class Pipe(Protocol):
    """What both contenders can do."""

    child: int | None

    def send(self, data: memoryview) -> None:
        """Send a message whose size the other side knows."""
        ...

    def recv(self, size: int) -> memoryview:
        """Receive a message of known size."""
        ...


def _echo_case(size: int, ours: "_Lazy", bare: "_Lazy", *, quick: bool, pinned: int = 0) -> Case:
    count = max(1, min(200 if quick else 2000, (16 if quick else 64) * MIB // size))

    def measure(pipe: "_Lazy") -> Callable[[], float]:
        return lambda: _time(pipe(), ECHO, size, count, pinned=pinned) / count * 1e6

    where = ("", " on one core", " on two cores")[pinned]
    return Case(
        name=f"echo {_show(size)}{where}",
        metric="round trip",
        unit="us",
        ours=measure(ours),
        peers=(InlinePeer("bare-tls", measure(bare)),),
        # Not on one core: parties on different hosts never share one.
        goal={(64, 0): 1.5, (64, 2): 1.5, (8 << 20, 0): 1.25}.get((size, pinned)),
    )


def _stream_case(size: int, ours: "_Lazy", bare: "_Lazy", *, quick: bool) -> Case:
    count = (64 if quick else 512) * MIB // size

    def measure(pipe: "_Lazy") -> Callable[[], float]:
        return lambda: size * count / _time(pipe(), STREAM, size, count) / 1e6

    return Case(
        name=f"stream {_show(size)}",
        metric="throughput",
        unit="MB/s",
        ours=measure(ours),
        peers=(InlinePeer("bare-tls", measure(bare)),),
        goal=1.25 if size == 8 << 20 else None,
        higher_is_better=True,
    )


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextmanager
def _pin(pid: int, cores: int) -> Iterator[None]:
    """Keep every thread of both processes on one core, or each process on its own."""
    before = os.sched_getaffinity(0)
    ours, theirs = _cores()[0], _cores()[cores - 1]
    _set_affinity(os.getpid(), {ours})
    _set_affinity(pid, {theirs})
    try:
        yield
    finally:
        _set_affinity(os.getpid(), before)
        _set_affinity(pid, before)


def _set_affinity(pid: int, cores: set[int]) -> None:
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):  # it has ended since
            os.sched_setaffinity(int(thread.name), cores)


def _time(pipe: Pipe, mode: int, size: int, count: int, *, pinned: int = 0) -> float:
    if pinned and pipe.child is not None:
        with _pin(pipe.child, pinned):
            return _time(pipe, mode, size, count)
    payload = np.zeros(size, np.uint8).data
    pipe.send(memoryview(COMMAND.pack(mode, size, count)))
    pipe.recv(1)
    begun = perf_counter()
    for _ in range(count):
        pipe.send(payload)
        if mode == ECHO:
            pipe.recv(size)
    if mode == STREAM:
        pipe.recv(1)
    return perf_counter() - begun


def _serve(pipe: Pipe) -> None:
    while True:
        mode, size, count = COMMAND.unpack(pipe.recv(COMMAND.size))
        if mode == STOP:
            return
        pipe.send(memoryview(b"!"))
        for _ in range(count):
            data = pipe.recv(size)
            if mode == ECHO:
                pipe.send(data)
        if mode == STREAM:
            pipe.send(memoryview(b"!"))


class _OurPipe:
    """A link of ours; the later name dials, so ``b`` is the child."""

    def __init__(self, folder: Path, port: int | None) -> None:
        me, other = ("a", "b") if port is None else ("b", "a")
        listener = listen("127.0.0.1", 0) if port is None else None
        self.child: int | None = None
        if listener is not None:
            self.child = _start_child("ours", folder, listener.getsockname()[1])
        der = ssl.PEM_cert_to_DER_cert((folder / f"{other}.pem").read_text())
        links = mesh(
            me,
            {other: Peer(None if port is None else ("127.0.0.1", port), fingerprint(der))},
            credentials=Credentials(folder / f"{me}.pem", folder / f"{me}.key"),
            listener=listener,
            meter=Meter(me),
        )
        if listener is not None:
            listener.close()
        self._link = links[other]

    def send(self, data: memoryview) -> None:
        self._link.send("bench/data", frame_bytes(data))

    def recv(self, size: int) -> memoryview:
        return self._link.recv("bench/data").data

    def close(self) -> None:
        self._link.close()


class _BarePipe:
    """One blocking TLS socket, ``sendall`` and ``recv_into``: the least Python can do."""

    def __init__(self, folder: Path, port: int | None) -> None:
        is_server = port is None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        self.child: int | None = None
        if is_server:
            context.load_cert_chain(folder / "a.pem", folder / "a.key")
            with socket.create_server(("127.0.0.1", 0)) as listener:
                self.child = _start_child("bare", folder, listener.getsockname()[1])
                plain, _ = listener.accept()
        else:
            context.check_hostname = False
            context.load_verify_locations(folder / "a.pem")
            plain = socket.create_connection(("127.0.0.1", port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock = context.wrap_socket(plain, server_side=is_server)
        self._buffer = memoryview(bytearray(0))

    def send(self, data: memoryview) -> None:
        self._sock.sendall(data)

    def recv(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = memoryview(bytearray(size))
        view, got = self._buffer[:size], 0
        while got < size:
            count = self._sock.recv_into(view[got:])
            if count == 0:
                raise ConnectionError("the other process is gone")
            got += count
        return view

    def close(self) -> None:
        self._sock.close()


class _Lazy:
    """Starts the two processes of a contender at its first measurement, ends them at exit."""

    def __init__(self, kind: type[_OurPipe] | type[_BarePipe]) -> None:
        self._kind = kind
        self._pipe: _OurPipe | _BarePipe | None = None

    def __call__(self) -> Pipe:
        if self._pipe is None:
            folder = tempfile.TemporaryDirectory()
            for name in ("a", "b"):
                _make_certificate(Path(folder.name), name)
            self._pipe = self._kind(Path(folder.name), None)
            atexit.register(folder.cleanup)
            atexit.register(self._end, self._pipe)
        return self._pipe

    @staticmethod
    def _end(pipe: _OurPipe | _BarePipe) -> None:
        pipe.send(memoryview(COMMAND.pack(STOP, 0, 0)))
        pipe.close()


def _start_child(kind: str, folder: Path, port: int) -> int:
    child = subprocess.Popen(as_program("transport/links", kind, str(folder), str(port)))
    atexit.register(child.wait)
    return child.pid


def _make_certificate(folder: Path, name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _show(size: int) -> str:
    for unit, factor in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= factor:
            return f"{size // factor} {unit}"
    return f"{size} B"


if __name__ == "__main__":
    kinds = {"ours": _OurPipe, "bare": _BarePipe}
    child_pipe = kinds[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    _serve(child_pipe)
    child_pipe.close()
