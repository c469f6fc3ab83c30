"""The hash of what all parties of a job must share."""

import hashlib
import json
from collections.abc import Mapping

from tacit.jobs.config import Job
from tacit.nn.code import OwnModel
from tacit.spec import to_tables


def job_digest(job: Job) -> bytes:
    """Hash the public content of a job.

    Everything counts but what is marked local: the paths of files, which lie on one host only;
    addresses, which depend on where one stands (the key says who a party is); and the report.
    The order of keys does not count, nor whether a default is written out.

    Guarantee: two parties with the same digest have the same parties, keys, owners, bounds,
    protocol, ring and timeouts, if SHA-256 is collision resistant.
    Cost: 0 rounds, 0 bits.
    """
    content = shared_content(job)
    text = json.dumps(content, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(b"tacit job 1\n" + text.encode()).digest()


def measured_digest(job: Job) -> bytes:
    """Hash what an enclave of a job is measured by beside this package: the job, and its code.

    Raises:
        ConfigError: the code that the job names is not here, or was not allowed.
    """
    code = getattr(getattr(job, "model", None), "code", None)
    if code is None:
        return job_digest(job)
    return hashlib.sha256(job_digest(job) + OwnModel.read(code).digest.encode()).digest()


def shared_content(job: Job) -> Mapping[str, object]:
    """Return what the digest covers, as plain tables."""
    content = to_tables(job.settled(), is_shared=True)
    assert isinstance(content, dict)  # noqa: S101 - a job is a dataclass
    return content
