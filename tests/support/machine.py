"""The machine around a program: a disk that loses power, ports, unread memory, a Ray cluster."""

import errno
import gc
import os
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from tacit.transport.frame import Packet

# Disks


class Disk:
    """Follows what each thread has left unflushed: files by their number, names by their folder.

    A rename, a new file or a new folder is lost in a power cut until its folder is flushed, and
    what a file holds until the file is.
    """

    def __init__(self, monkeypatch, root):
        self.root, self.acts = Path(root).resolve(), []
        self._loose = defaultdict(set)
        self._real = {name: getattr(os, name) for name in ("open", "fsync", "replace", "mkdir")}
        for name in ("rename", "link"):  # no second way to give a file its name
            self._real[name] = getattr(os, name)
            monkeypatch.setattr(os, name, self._named(name))
        for name in ("open", "fsync", "replace", "mkdir"):
            monkeypatch.setattr(os, name, getattr(self, f"_{name}"))

    @property
    def loose(self):
        """What this thread would lose now."""
        return self._loose[threading.get_ident()]

    def forget(self):
        self._loose.clear()
        self.acts.clear()

    def _is_ours(self, path):
        return Path(path).is_relative_to(self.root)

    def _open(self, path, flags, *rest, **more):
        is_new = flags & os.O_CREAT and not os.path.lexists(path)
        number = self._real["open"](path, flags, *rest, **more)
        where = Path(os.path.realpath(path))
        # The lock beside a file holds nothing, and may be lost.
        if is_new and self._is_ours(where) and where.suffix != ".lock":
            self.loose.update({str(where), str(where.parent)})
        return number

    def _fsync(self, number):
        self._real["fsync"](number)
        where = os.path.realpath(f"/proc/self/fd/{number}")
        self.acts.append(("flush", Path(where).name if Path(where).is_file() else "folder"))
        self.loose.discard(where)

    def _replace(self, old, new, **more):
        assert str(old) not in self.loose, f"{old} takes its place before it is flushed"
        self._real["replace"](old, new, **more)
        if self._is_ours(new):
            self.acts.append(("rename", Path(new).name))
            self.loose.add(str(Path(new).parent))

    def _named(self, name):
        def act(old, new, **more):
            self._real[name](old, new, **more)
            if self._is_ours(new):
                self.loose.add(str(Path(new).parent))

        return act

    def _mkdir(self, path, *rest, **more):
        self._real["mkdir"](path, *rest, **more)
        if self._is_ours(os.path.realpath(path)):
            self.loose.add(str(Path(os.path.realpath(path)).parent))


def full_disk(monkeypatch, act):
    """Let one act fail as on a full disk: to make a file, to flush it, or to name it."""

    real = getattr(os, act)

    def fails(first, *rest, **more):
        is_writing = act != "open" or str(first).endswith(".part")
        if is_writing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(first, *rest, **more)

    monkeypatch.setattr(os, act, fails)


# Ports for programs that a test starts: nobody is given one of them by chance meanwhile

# Below the range from which the system hands out ports, also to whoever dials: a port of that range
# that was free a moment ago may be taken when the program, which starts for seconds, listens. Each
# worker has a part of its own, and goes through it from another place in every run.
_LOW, _PART, _PARTS = 20_000, 700, 16
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_numbers = count(os.getpid() * 37)


def free_ports(wanted):
    """Return ports of this machine that are free, and were not given to another test."""
    found = []
    while len(found) < wanted:
        port = _LOW + _worker % _PARTS * _PART + next(_numbers) % _PART
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))  # noqa: S104 - nobody listens
            except OSError:
                continue
        found.append(port)
    return found


def free_port():
    """Return one."""
    return free_ports(1)[0]


# What unread frames keep alive where only counting references frees them


@contextmanager
def no_collector() -> Iterator[None]:
    """The cycle collector counts objects, not bytes: what only it frees may stay for hours."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def unread_bytes() -> int:
    """Return how much lies in the payloads of all packets that are still alive."""
    packets = [one for one in gc.get_objects() if type(one) is Packet]
    return sum(one.head.payload_bytes for one in packets)


# A Ray cluster in this process: what is shared is kept, tasks run when they are submitted


class RayError(Exception):
    """What Ray says about itself."""


class RayTaskError(RayError):
    """What Ray wraps around the error of a task."""

    def __init__(self, cause):
        super().__init__(f"ray::task() {cause}")
        self.cause = cause


class Handle:
    def __init__(self, value):
        self.value = value


class FakeRay:
    """As much of Ray's module as `tacit.cluster` uses, with one core."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *, is_there=True, is_up=False):
        self.is_there, self.is_up, self.addresses = is_there, is_up, []

    def is_initialized(self):
        return self.is_up

    def init(self, *, address, **how):
        if not self.is_there:
            raise ConnectionError("nobody answers")
        self.addresses.append(address)
        self.is_up = True

    def shutdown(self):
        self.is_up = False

    def cluster_resources(self):
        return {"CPU": 1.0}

    def put(self, value):
        return Handle(value)

    def remote(self, **how):
        return lambda function: SimpleNamespace(remote=lambda *args: self._run(function, args))

    def _run(self, function, args):
        future = Future()
        try:
            future.set_result(
                function(*(one.value if isinstance(one, Handle) else one for one in args))
            )
        except Exception as error:
            future.set_exception(RayTaskError(error))
        return SimpleNamespace(future=lambda: future)
