"""The secrets of a federated job: one file for each client, and the public key for the server."""

import os
from pathlib import Path

from tacit.errors import ConfigError
from tacit.federated import provision
from tacit.jobs.federated_job import FederatedJob
from tacit.jobs.toml import read_toml
from tacit.ring import Prg
from tacit.spec import read_record


def make_secrets(path: Path, name: str, folder: Path) -> list[str]:
    """Make the files and return what is to be done with them; nothing is overwritten.

    Raises:
        ConfigError: the job needs none, or a file is there.
    """
    raw = read_toml(path)
    head = raw.get("job")
    kind = head.get("kind") if isinstance(head, dict) else None
    if kind != "federated":
        raise ConfigError(
            f"{path}: --job wants a job of kind 'federated', got {str(kind)[:60]!r}; for the "
            "key of a party leave --job out"
        )
    job = read_record(raw, FederatedJob, source=str(path))
    spec, secrets = provision(job.spec(), Prg.from_os())
    if not spec.needs_secrets:
        raise ConfigError(
            f"aggregator {spec.aggregator!r} needs no secrets beforehand; encrypted and "
            "verified sums do"
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for index, secret in enumerate(secrets):
        _write(folder / f"{name}-{index}.secret", secret, 0o600)
    lines = [
        f"{folder}/{name}-0.secret to {name}-{len(secrets) - 1}.secret: one for each client, as "
        "`secret` in its node config; then delete them here."
    ]
    if spec.public_key is not None:
        _write(folder / f"{name}.public", spec.public_key, 0o644)
        lines.append(f'[federated]\npublic_key = "{folder}/{name}.public"')
    return lines


def _write(file: Path, data: bytes, mode: int) -> None:
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as out:
            out.write(data)
    except FileExistsError as error:
        raise ConfigError(
            f"{file} is there already, and is not overwritten; take another NAME or --dir"
        ) from error
