"""Jobs: tables with some keys changed, parties as threads, and commands with what they print."""

import copy
import io
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from tacit import ring
from tacit.cli.commands.group import Edge
from tacit.cli.main import run_command
from tacit.jobs.kind import Place
from tacit.jobs.kinds import kind_of, read_job
from tacit.party import Meeting, Usage, merge_results, run_threads
from tacit.result import Cost, Result
from tacit.transport import Patience

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


def take_parts(job, folder, *, patience=None, wrap=lambda me, link: link, **place):
    """Let every party of a job take its part, as threads; return what each has."""
    told = {"search": (), "launched": "threads", "out": folder / "out", **place}

    def party(session):
        usage = Usage()
        role, progress = job.role(session.me), session.progress
        report = partial(usage.report, name=session.me, role=role, progress=progress)
        seat = Place(**told, report=report)
        return kind_of(job).take_part(session, job, seat)

    parties, patience = tuple(job.parties), patience or Patience()
    meeting = Meeting(parties=parties, job_digest=bytes(32), patience=patience)
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


def make_result(**changes):
    """Return the result of a run that sent nothing and says nothing, with some of it changed."""
    told = dict.fromkeys(("parties", "leakage", "claims", "utility"), ())
    words = {"kind": "infer", "name": "j", "protocol": "sealed", "launched": "threads"}
    nothing = Cost(traffic=(), offline_rounds=0, online_rounds=0)
    made = {"created": "2026-01-02T03:04:05+00:00", "version": "0", "forecast": None}
    return Result(**{**told, **words, **made, "metered": nothing, **changes})


def tacit_says(*arguments):
    """Run a command; return its exit code, what it printed, and what it complained about."""
    out, err = io.StringIO(), io.StringIO()
    edge = Edge(out=Console(file=out, width=400), err=Console(file=err, width=400))
    return run_command([str(one) for one in arguments], edge), out.getvalue(), err.getvalue()
