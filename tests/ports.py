"""Ports for programs that a test starts: nobody is given one of them by chance meanwhile."""

import os
import socket
from itertools import count

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
