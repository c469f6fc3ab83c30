"""The table of kinds of jobs. Launching, joining and planning know a job by its entry here alone.

A new kind is a spec in the package that does the work, a module here with its `KIND`, and a line in
`KINDS`. Entries are functions: what a kind imports is heavy, and loaded when a job is of that kind.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from tacit.errors import ConfigError
from tacit.jobs.config import Job
from tacit.jobs.kind import Kind, of_any
from tacit.jobs.toml import read_toml
from tacit.spec import read_record, suggest


def _named(module: str, name: str = "KIND") -> Callable[[], Kind[Job]]:
    """Return what loads the `KIND` of a module of this room."""
    return lambda: of_any(getattr(import_module(f"tacit.jobs.{module}"), name))


KINDS: Mapping[str, Callable[[], Kind[Job]]] = {
    "audit": _named("audit"),
    "audit-llm": _named("audit", "KIND_LLM"),
    "federated": _named("federated"),
    "fit": _named("fit"),
    "infer": _named("infer"),
    "split": _named("split"),
    "serve": _named("serve"),
    "text": _named("text"),
    "train": _named("train"),
    "verify": _named("verify"),
}


def load_job(path: Path) -> Job:
    """Read and check a job file.

    Raises:
        ConfigError: names the file, every wrong key, what was wanted and what came.
    """
    return read_job(read_toml(path), source=str(path))


def read_job(raw: Mapping[str, object], *, source: str) -> Job:
    """Check the tables of a job file."""
    return read_record(raw, find_kind(raw, source).record, source=source)


def kind_of(job: Job) -> Kind[Job]:
    """Return the entry of a job that was loaded."""
    return KINDS[job.job.kind]()


def check_fresh(job: Job, is_fresh: bool) -> None:
    """Refuse to discard what jobs of a kind never keep.

    Raises:
        ConfigError: a job of this kind is not one that goes on.
    """
    if is_fresh and not kind_of(job).resumes:
        raise ConfigError(
            f"--fresh discards the checkpoints of a training; {job.job.name!r}, of kind "
            f"{job.job.kind!r}, has none: leave it out"
        )


def find_kind(raw: Mapping[str, object], source: str) -> Kind[Job]:
    """Return the kind that a job file names, before the rest of it is read."""
    head = raw.get("job")
    name = head.get("kind") if isinstance(head, dict) else None
    if name is None:
        # Let the reader of records say what a whole head looks like.
        return KINDS["infer"]()
    if not isinstance(name, str) or name not in KINDS:
        near = suggest(name, KINDS) if isinstance(name, str) else ""
        wanted = ", ".join(repr(known) for known in KINDS)
        raise ConfigError(
            f"{source}: job.kind: wanted one of {wanted}, got {repr(name)[:60]}{near}"
        )
    return KINDS[name]()
