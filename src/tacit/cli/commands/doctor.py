"""``tacit doctor``: what this host has, what is missing for what, and whether hosts reach others.

Two hosts try their way to each other without a job: one waits (``--wait HOST:PORT``), the other
calls (``--reach HOST:PORT``). They exchange a greeting and the time of day, nothing else, and in
the clear: this tests firewalls, addresses and clocks. Keys are tested by a job.
"""

import os
import shutil
import socket
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tacit import __version__
from tacit.cli.screen import printable
from tacit.errors import InputError
from tacit.extras import EXTRAS, Extra
from tacit.jobs.config import parse_address
from tacit.jobs.kinds import load_job

GREETING = b"tacit doctor"
_LONGEST = 64
_TIMEOUT_S = 5.0
_SKEW_S = 5.0
_GOOD, _WARN, _QUIET = ("✓", "green"), ("!", "yellow"), ("–", "dim")
_GIB = 1 << 30

Row = tuple[tuple[str, str], str, str]
"""A mark with its style, what was looked at, and what was found."""


def examine(*, job: Path | None, me: str | None) -> RenderableType:
    """Look at this host and, given a job, at the addresses of its parties."""
    rows = [*_host_rows(), *(_extra_row(extra) for extra in EXTRAS)]
    if job is not None:
        rows += _job_rows(job, me)
    return _lay(rows)


def reach(address: str) -> RenderableType:
    """Call a host where ``tacit doctor --wait`` runs, and tell round trip and clocks apart.

    Raises:
        InputError: nobody answers there, or somebody who is no tacit.
    """
    where = parse_address(address)
    try:
        with socket.create_connection(where, timeout=_TIMEOUT_S) as link:
            start = time.monotonic()
            link.sendall(GREETING)
            answer = _read(link)
            round_trip_s = time.monotonic() - start
    except OSError as error:
        raise InputError(
            f"{address} cannot be reached: {error.strerror or error}; start `tacit doctor --wait "
            f"0.0.0.0:{where[1]}` there, and see that no firewall is between"
        ) from error
    if not answer.startswith(GREETING + b" "):
        raise InputError(f"{address} answers, but not as `tacit doctor --wait` does")
    try:
        theirs = float(answer.removeprefix(GREETING))
    except ValueError:
        raise InputError(f"{address} answers with a time that cannot be read") from None
    skew_s = theirs - (time.time() - round_trip_s / 2)
    clocks: Row = (
        _GOOD if abs(skew_s) < _SKEW_S else _WARN,
        "clocks",
        f"that host's is {abs(skew_s):.1f} s {'ahead' if skew_s > 0 else 'behind'}",
    )
    return _lay([(_GOOD, address, f"reached; round trip {round_trip_s * 1e3:.1f} ms"), clocks])


def wait(address: str, *, seconds: float) -> RenderableType:
    """Answer callers for a while; say who came.

    Raises:
        InputError: the address cannot be listened on.
    """
    host, port = parse_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    callers: list[str] = []
    try:
        with socket.create_server((host, port), family=family) as server:
            end = time.monotonic() + seconds
            while (left := end - time.monotonic()) > 0:
                server.settimeout(left)
                try:
                    link, peer = server.accept()
                except TimeoutError:
                    break
                if _answer(link):
                    callers.append(peer[0])
    except OSError as error:
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from error
    found = ", ".join(dict.fromkeys(callers)) or "nobody"
    return _lay([(_GOOD if callers else _WARN, address, f"called by {found}")])


def _answer(link: socket.socket) -> bool:
    """Greet one caller; whatever it sends or does not send harms nobody."""
    with link:
        link.settimeout(_TIMEOUT_S)
        try:
            if _read(link) != GREETING:
                return False
            link.sendall(GREETING + f" {time.time():.6f}".encode())
        except OSError:
            return False
    return True


def _read(link: socket.socket) -> bytes:
    return link.recv(_LONGEST)


def _host_rows() -> list[Row]:
    python = ".".join(map(str, sys.version_info[:3]))
    free = shutil.disk_usage(Path.cwd()).free
    now = datetime.now(UTC)
    return [
        (_GOOD, "tacit", f"{__version__} on Python {python}"),
        (_GOOD, "cores", str(len(os.sched_getaffinity(0)))),
        (_GOOD, "memory", _memory()),
        (_GOOD if free > _GIB else _WARN, "disk here", f"{free / _GIB:.1f} GiB free"),
        _gpu_row(),
        (_GOOD, "clock", f"{now:%Y-%m-%d %H:%M:%S} UTC"),
        _listening_row(),
    ]


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{total / _GIB:.1f} GiB"


def _gpu_row() -> Row:
    import torch  # heavy: only this command and jobs pay for it

    if not torch.cuda.is_available():
        return (_QUIET, "GPU", "none; everything runs on processors")
    return (_GOOD, "GPU", torch.cuda.get_device_name(0))


def _listening_row() -> Row:
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return (_GOOD, "ports", "processes of this machine can listen on loopback")
    except OSError as error:
        return (_WARN, "ports", f"cannot listen on loopback: {error.strerror}")


def _extra_row(extra: Extra) -> Row:
    missing = [module for module in extra.modules if find_spec(module) is None]
    if not missing:
        return (_GOOD, f"extra {extra.name}", f"{extra.gives}: {_versions(extra)}")
    hint = f"pip install 'tacit-ml[{extra.name}]'"
    return (_QUIET, f"extra {extra.name}", f"{extra.gives}: not installed; {hint}")


def _versions(extra: Extra) -> str:
    known = {"PIL": "pillow", "z3": "z3-solver", "dp_accounting": "dp-accounting"}
    found = []
    for module in extra.modules:
        name = known.get(module, module)
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(name)
    return ", ".join(found)


def _job_rows(path: Path, me: str | None) -> list[Row]:
    """Try every address of a job: one's own to listen on, the others' to connect to."""
    job = load_job(path)
    if me is not None and me not in job.parties:
        raise InputError(f"{path} has no party {me!r}; wanted one of {', '.join(job.parties)}")
    rows: list[Row] = []
    for name, entry in job.parties.items():
        head = f"party {name}"
        if entry.address is None:
            rows.append((_QUIET, head, "has no address in the job: it calls the others"))
        elif name == me:
            rows.append(_own_row(head, entry.address))
        else:
            rows.append(_peer_row(head, entry.address))
    return rows


def _own_row(head: str, address: str) -> Row:
    _, port = parse_address(address)
    try:
        with socket.create_server(("", port)):
            return (_GOOD, head, f"port {port} is free here")
    except OSError as error:
        return (_WARN, head, f"cannot listen on port {port}: {error.strerror}")


def _peer_row(head: str, address: str) -> Row:
    start = time.monotonic()
    try:
        with socket.create_connection(parse_address(address), timeout=_TIMEOUT_S):
            return (
                _GOOD,
                head,
                f"{address} answers after {(time.monotonic() - start) * 1e3:.0f} ms",
            )
    except ConnectionRefusedError:
        return (_WARN, head, f"{address}: the host is there, and nobody listens on that port yet")
    except OSError as error:
        return (_WARN, head, f"{address} cannot be reached: {error.strerror or error}")


def _lay(rows: list[Row]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for (mark, style), head, found in rows:
        table.add_row(Text(mark, style=style), Text(printable(head)), Text(printable(found)))
    return table
