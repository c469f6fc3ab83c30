"""What a client of a service is handed: one file with its job, without a model or a secret key."""

import io
import zipfile
from pathlib import Path

from tacit.errors import ConfigError
from tacit.jobs.folder import write_bytes
from tacit.jobs.kinds import read_job
from tacit.jobs.serve import ServeJob
from tacit.jobs.toml import JOB_INSIDE, write_toml
from tacit.spec import to_tables

_NEEDED = ("job", "parties", "clients", "model", "service", "protocol", "ring", "network")
_MODEL = ("owner", "kind", "layers", "inputs")
"""What follows from these decides what a row and an answer look like."""


def find_client(job: ServeJob, name: str | None) -> str:
    """Return the client of that name, or the only one there is.

    Raises:
        ConfigError: there is none of that name, or there are several and none is named.
    """
    if name in job.clients:
        return str(name)
    known = ", ".join(job.clients)
    if name is not None:
        raise ConfigError(f"the job has no client {name!r}; it has {known}")
    if len(job.clients) > 1:
        raise ConfigError(f"the job has the clients {known}: name one of them with --as")
    return next(iter(job.clients))


def bundle_for(job: ServeJob, client: str, keys: Path) -> bytes:
    """Return the archive that a client asks with.

    It holds the fingerprints of both servers and of this client, where the servers are, the names
    and divisors of columns, and what the answers are. Of the model there are the sizes that every
    client is told, of other clients nothing.

    Args:
        job: of the service.
        client: who will ask.
        keys: a folder with keys that the job does not name; only their fingerprints are taken.

    Raises:
        ConfigError: a fingerprint is missing, or a client would have to run the code of a model.
    """
    if job.model.code is not None and job.model.inputs:
        raise ConfigError(
            "model.code: a client would have to run it; say the layers in words, or give clients "
            "the job and the code yourself"
        )
    servers = job.protocol.compute
    known = job.with_keys(keys, may_make=False, whose=(*servers, client))
    tables = to_tables(known.settled())
    made = {name: tables[name] for name in _NEEDED}
    made["job"] = {name: tables["job"][name] for name in ("name", "kind")}
    made["parties"] = {
        name: {"key": entry.key} if name in servers else {} for name, entry in known.parties.items()
    }
    made["clients"] = {client: {"key": known.clients[client].key}}
    made["model"] = {name: tables["model"][name] for name in _MODEL}
    text = write_toml(_said(made))
    read_job(_said(made), source="the client's job")  # what is handed out can be read
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        # Of no date: the same job makes the same bytes, whose hash can be told.
        archive.writestr(zipfile.ZipInfo(JOB_INSIDE), text)
    return content.getvalue()


def write_bundle(path: Path, job: ServeJob, client: str, keys: Path) -> bytes:
    """Write the archive of a client, and return its bytes."""
    content = bundle_for(job, client, keys)
    write_bytes(path, content)
    return content


def _said(table: dict[str, object]) -> dict[str, object]:
    """Leave out what says nothing, which TOML cannot write; empty tables of parties stay."""
    found: dict[str, object] = {}
    for name, value in table.items():
        if isinstance(value, dict):
            found[name] = _said(value)
        elif value is not None and value != []:
            found[name] = value
    return found
