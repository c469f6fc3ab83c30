"""What does not fit together in a job file of kind "infer", found before anything is read."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tacit.errors import ConfigError, RangeError
from tacit.inference import Sizes, plan_prediction
from tacit.mpc import find_protocol
from tacit.spec import Problem

if TYPE_CHECKING:
    from tacit.jobs.infer_job import InferJob


def named_parties(job: "InferJob") -> Mapping[str, str]:
    """Return every setting that names a party."""
    named = {"data.owner": job.data.owner}
    if job.protocol.dealer is not None:
        named["protocol.dealer"] = job.protocol.dealer
    if job.model.owner is not None:
        named["model.owner"] = job.model.owner
    named |= {f"data.owners.{name}": name for name in job.data.owners}
    named |= {f"protocol.compute[{i}]": name for i, name in enumerate(job.protocol.compute or ())}
    return named


def find_problems(job: "InferJob") -> Iterator[Problem]:
    """Say what does not fit together."""
    if job.is_direct:
        yield from _check_direct(job)
        return
    if job.has_dealer and job.protocol.dealer is None:
        yield Problem("protocol.dealer", "missing; wanted a text")
        return
    if not job.has_dealer and job.protocol.dealer is not None:
        yield Problem("protocol.dealer", f"{job.protocol.kind!r} has none; leave it out")
        return
    check = _check_linear if job.is_linear else _check_shared if job.is_shared else _check_owned
    yield from check(job)


def _check_direct(job: "InferJob") -> Iterator[Problem]:
    """Check a job between the two owners alone."""
    kind, owner = job.protocol.kind, job.model.owner
    if owner is None:
        yield Problem("model.owner", f"missing; under {kind} one party owns the model")
        return
    if owner == job.data.owner:
        yield Problem("model.owner", "owns the rows as well; nothing is to be hidden")
    for key in ("dealer", "compute"):
        if getattr(job.protocol, key) is not None:
            yield Problem(f"protocol.{key}", f"{kind} is between the two owners; leave it out")
    for key, value in (("data.owners", job.data.owners), ("model.shares", job.model.shares)):
        if value:
            yield Problem(key, f"is not there under {kind}; use sealed")
    if job.model.cap is not None:
        yield Problem("model.cap", f"nothing saturates under {kind}; leave it out")
    wrong = "output" if job.is_linear else "score"
    if kind == "he":
        if job.model.is_forest:
            yield Problem("protocol.kind", "he cannot compare, as trees do; use sealed or enclave")
        if job.protocol.reveal == "class":
            right = "score" if job.is_linear else "output"
            yield Problem("protocol.reveal", f"he cannot find the largest; take {right!r}")
    elif job.ring.frac_bits is not None:
        yield Problem("ring.frac_bits", "an enclave computes with floats; leave it out")
    elif owner in job.parties and job.parties[owner].enclave is None:
        text = f'missing; wanted enclave = "simulated": {owner} must attest what it runs'
        yield Problem(f"parties.{owner}.enclave", text)
    elif job.is_linear and job.model.code is not None:
        text = f"only {owner} has it, and everybody measures what an enclave runs; use model.file"
        yield Problem("model.code", text)
    if job.protocol.reveal == wrong:
        model = "a linear model" if job.is_linear else "a network"
        yield Problem("protocol.reveal", f"{model} has no {wrong!r} to reveal")


def _check_linear(job: "InferJob") -> Iterator[Problem]:
    yield from _check_reveal(job, "output", "a linear model", "class' or 'score")
    for key, value in (("shape", job.data.shape), ("owners", job.data.owners)):
        if value:
            yield Problem(f"data.{key}", "is for a network with layers; leave it out")
    if job.model.cap is not None:
        yield Problem("model.cap", "one linear layer has no hidden values; leave it out")
    if job.model.owner is None:
        text = "missing; wanted the owner of the linear model, or the layers of a shared network"
        yield Problem("model.owner", text)
    is_second = job.protocol.compute is not None and job.protocol.compute[1] == job.model.owner
    if is_second and "permuted2" in job.protocol.kind:
        yield Problem(
            "protocol.compute",
            f"under permuted2 the second party sees permuted values of the rows: "
            f"wanted {job.data.owner!r} second, got the model owner {job.model.owner!r}",
        )


def check_room(job: "InferJob") -> None:
    """Refuse bounds that leave no room for one value: they leave none for the real sizes."""
    try:
        plan_prediction(job.task(), Sizes(rows=1, features=1))
    except RangeError as error:
        raise ConfigError(f"data.bound, model.bound and ring.frac_bits: {error}") from error


def _check_reveal(job: "InferJob", wrong: str, model: str, wanted: str) -> Iterator[Problem]:
    if job.protocol.reveal == wrong:
        yield Problem("protocol.reveal", f"of {model} wanted '{wanted}', got {wrong!r}")


def _check_owned(job: "InferJob") -> Iterator[Problem]:
    yield from _check_reveal(job, "score", "a network", "class' or 'output")
    if job.model.is_forest:
        yield from _check_reveal(job, "output", "a forest", "class")
    if len({job.data.owner, job.model.owner, job.protocol.dealer}) != 3:
        yield Problem("parties", "wanted another party for each of the roles")
    if job.protocol.compute is not None:
        yield Problem("protocol.compute", "is for a network without an owner; leave it out")
    if job.model.shares:
        yield Problem("model.shares", "are of a network without an owner; leave owner or them out")
    if job.data.owners:
        yield Problem("data.owners", "ask a network without an owner; leave model.owner out")


def _check_shared(job: "InferJob") -> Iterator[Problem]:
    if job.model.is_forest:
        yield Problem("model.owner", "missing; wanted the owner of the forest")
        return
    yield from _check_reveal(job, "score", "a network", "class' or 'output")
    computing = job.protocol.compute
    if computing is None:
        text = "missing; a network without model.owner wants the two parties that hold its shares"
        yield Problem("protocol.compute", text)
        return
    if len({*computing, job.protocol.dealer}) != 3:
        yield Problem("protocol", "wanted two parties that compute and another one that deals")
    yield from _check_columns(job)
    if job.data.owner == job.protocol.dealer:
        yield Problem("data.owner", "the dealer knows the masks and must not own the rows")
    for name in set(job.model.shares) - set(computing):
        yield Problem(f"model.shares.{name}", "is not one of the parties of protocol.compute")
    if job.model.file is not None:
        yield Problem("model.file", "is of a network with an owner; wanted model.shares")
    if not job.data.owners and _is_seen(job) and job.data.owner != computing[1]:
        text = (
            f"under {job.protocol.kind} the second of protocol.compute sees values that follow "
            f"from the rows; let it be {job.data.owner!r}, or use sealed or permuted3"
        )
        yield Problem("protocol.compute", text)


def _is_seen(job: "InferJob") -> bool:
    return find_protocol(job.protocol.kind).second_sees


def _check_columns(job: "InferJob") -> Iterator[Problem]:
    """Check owners of columns, if there are any."""
    owners = job.data.owners
    if not owners:
        return
    if len(owners) < 2:
        yield Problem("data.owners", "wanted two owners of columns or more; of one, leave it out")
    if job.data.owner not in owners:
        text = f"wanted one of the owners {', '.join(owners)}, got {job.data.owner!r}"
        yield Problem("data.owner", text)
    if job.protocol.dealer in owners:
        yield Problem("data.owners", "the dealer knows the masks and must not own columns")
    if len(job.model.inputs) != 1:
        yield Problem("model.inputs", f"columns make flat rows, got {list(job.model.inputs)}")
    if _is_seen(job):
        text = (
            f"under {job.protocol.kind} the second of protocol.compute sees values that follow "
            "from the rows of all owners; use sealed or permuted3"
        )
        yield Problem("protocol.kind", text)
