"""Jobs: tables with some keys changed, parties as threads, and commands with what they print."""

import copy
import io
from pathlib import Path

import numpy as np
from rich.console import Console

from tacit import ring
from tacit.cli.commands.group import Edge
from tacit.cli.main import run_command
from tacit.jobs.kind import Place
from tacit.jobs.kinds import kind_of, read_job
from tacit.party import Meeting, Usage, merge_results, run_threads

JOBS = Path(__file__).parents[2] / "examples" / "jobs"


def changed(raw, changes):
    """Return tables with keys such as `data__rows` set, or removed where the value is None."""
    raw = copy.deepcopy(raw)
    for dotted, value in changes.items():
        *tables, key = dotted.split("__")
        table = raw
        for name in tables:
            table = table.setdefault(name, {})
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return raw


def read_changed(raw, changes):
    """Read the job of such tables."""
    return read_job(changed(raw, changes), source="job.toml")


def take_parts(job, folder, *, wrap=lambda me, link: link, **place):
    """Let every party of a job take its part, as threads; return what each has."""

    def party(session):
        usage = Usage()
        seat = Place(
            search=(),
            launched="threads",
            report=lambda: usage.report(name=session.me, role="", progress=session.progress),
            out=folder / "out",
            **place,
        )
        return kind_of(job).take_part(session, job, seat)

    meeting = Meeting(parties=tuple(job.parties), job_digest=bytes(32))
    return run_threads(dict.fromkeys(job.parties, party), meeting, wrap=wrap)


def join_parts(job, parts):
    """Return the result that all parties have together."""
    return merge_results(tuple(parts[name].result for name in job.parties))


def write_shares(state, folder, parties):
    """Divide weights between two parties, as a training leaves them; return the file of each."""
    prg, shares = ring.Prg(b"shares of a test"), {name: {} for name in parties}
    for name, value in state.items():
        words = ring.encode(value.double(), frac_bits=16)
        mask = prg.words(tuple(words.shape))
        for party, share in zip(parties, (mask, words - mask), strict=True):
            shares[party][name.replace(".", "/")] = share.numpy()
    for party, share in shares.items():
        np.savez(folder / f"{party}.npz", frac_bits=np.int64(16), **share)
    return {party: str(folder / f"{party}.npz") for party in parties}


def tacit_says(*arguments):
    """Run a command; return its exit code, what it printed, and what it complained about."""
    out, err = io.StringIO(), io.StringIO()
    edge = Edge(out=Console(file=out, width=400), err=Console(file=err, width=400))
    return run_command([str(one) for one in arguments], edge), out.getvalue(), err.getvalue()
