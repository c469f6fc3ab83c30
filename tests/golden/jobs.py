"""Jobs, as they lie in examples/jobs or made smaller, run with every party a thread."""

import io
import os
from unittest.mock import patch

from rich.console import Console

from golden.product import (
    Asked,
    Meeting,
    OnConsole,
    Patience,
    Place,
    Progress,
    Usage,
    allow,
    data_folders,
    kind_of,
    load_job,
    merge_results,
    read_job,
    read_toml,
    run_threads,
)
from golden.watch import Watch
from golden.words import TOP, outlook_table, result_table

JOBS = TOP / "examples" / "jobs"
PATIENCE = Patience(connect_s=60, silence_s=300, heartbeat_s=1, stall_s=600)


def changed(name, changes):
    """Return the tables of an example with some keys set, or removed where the value is None."""
    raw = read_toml(JOBS / f"{name}.toml")
    for dotted, value in changes.items():
        *tables, key = dotted.split(".")
        table = raw
        for one in tables:
            table = table.setdefault(one, {})
        table.pop(key, None)
        if value is not None:
            table[key] = value
    return raw


def run_job(name, *, raw=None, attacked=False, **changes):
    """Plan a job, run it, and return what is promised, foreseen, sent, shown and kept."""
    if changes:
        raw = changed(name, changes)
    job = read_job(raw, source=f"{name}.toml") if raw else None
    job = job or load_job(JOBS / f"{name}.toml")
    kind = kind_of(job)
    foreseen = foresee(job)
    with Watch() as watch:
        if kind.run is not None:
            part = kind.run(job, OnConsole(Console(file=io.StringIO())), data_folders())
            result, files = part.result, {"here": sorted(part.files)}
        else:
            result, files = _in_threads(kind, job, attacked)
    claims = (*foreseen.claims, *result.claims)
    return {
        "plan": outlook_table(foreseen),
        "result": result_table(result),
        "events": watch.events_of(dict.fromkeys(claims)),
        "files": files,
        **watch.seen(),
    }


def foresee(job):
    """Return what `tacit plan` says of a job."""
    return kind_of(job).forecast(job, Asked(search=data_folders()))


def has_mnist():
    """Tell whether a set is here that is not in the repository."""
    return any((folder / "mnist" / "mnist.npz").is_file() for folder in data_folders())


def plan_jobs(folder):
    """Plan every example as it stands, but federated ones, whose plan rehearses a round."""
    found = {}
    with patch.dict(os.environ, {"HOME": str(folder)}):
        allow(folder / "examples" / "jobs" / "train-text" / "model.py")
        for path in sorted(JOBS.glob("*.toml")):
            job = load_job(path)
            if "mnist" not in (raw := path.read_text()) and 'kind = "federated"' not in raw:
                found[path.stem] = outlook_table(foresee(job))
    return found


def _in_threads(kind, job, attacked):
    def party(session):
        usage = Usage()
        place = Place(
            search=data_folders(),
            launched="threads",
            report=lambda: usage.report(
                name=session.me, role=job.role(session.me), progress=session.progress
            ),
            out=job.out,
        )
        return kind.take_part(session, job, place)

    meeting = Meeting(parties=tuple(job.parties), job_digest=bytes(32), patience=PATIENCE)
    parts = run_threads(dict.fromkeys(job.parties, party), meeting)
    job.out.mkdir(parents=True, exist_ok=True)
    for part in parts.values():
        for name, content in part.files.items():
            data = content.encode() if isinstance(content, str) else content
            (job.out / name).write_bytes(data)
    result = merge_results(tuple(part.result for part in parts.values()))
    if kind.complete is not None:
        result = kind.complete(job, result, job.out, data_folders())
    if kind.attack is not None and attacked:
        result = kind.attack(job, result, data_folders(), Progress())
    files = {
        me: {
            "files": sorted(part.files),
            "values": None if part.values is None else list(part.values.shape),
            "weights": sorted(part.weights),
            "shares": sorted(part.shares),
            "keeps checkpoints": bool(part.checkpoints),
        }
        for me, part in parts.items()
    }
    return result, files
