"""`tacit.connect`: one party of a job, or a client of a service, from Python."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from tacit.cli.launch.member import (
    Seat,
    check_parties,
    do_part,
    find_part,
    met,
    own_seat,
    sole_start,
)
from tacit.data.memory import Handed
from tacit.data.source import Given
from tacit.errors import ConfigError
from tacit.inference.service import PredictionClient, connected
from tacit.inference.service.client import Tell
from tacit.inference.service.questions import shape_questions
from tacit.jobs.folder import discard
from tacit.jobs.kinds import kind_of, load_job
from tacit.jobs.serve import ServeJob, own_identity
from tacit.notebook import Lines, Shown
from tacit.party import Progress, Session, Usage
from tacit.result import Result

ANSWER_S = 300.0
"""How long a client waits for an answer; between questions a service may be idle for longer."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Answer(Shown):
    """What one party has when a job is done.

    Attributes:
        values: its answers: a class or a score per row; None if it gets none.
        weights: a model that was given to it, as `load_state_dict` takes it; empty if none was.
        shares: its share of every weight of a model that nobody has; empty if it holds none.
        result: cost, leakage and claims as this party saw them; None for a client of a service,
            which sees its own link alone.
    """

    values: Tensor | None
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    shares: Mapping[str, Tensor] = field(default_factory=dict)
    result: Result | None = None

    def _shown(self) -> tuple[str, Lines]:
        shape = "not for this party" if self.values is None else f"{tuple(self.values.shape)}"
        held = [
            (name, f"{len(tensors)} tensors")
            for name, tensors in (("weights", self.weights), ("shares", self.shares))
            if tensors
        ]
        return "Answer", [
            ("values", shape),
            *held,
            *(self.result.headline() if self.result else ()),
        ]


class Member(Protocol):
    """Somebody who has joined: a party of a job, or a client of a service."""

    def run(
        self,
        x: Handed = None,
        y: Handed = None,
        *,
        model: nn.Module | Mapping[str, Tensor] | None = None,
    ) -> Answer:
        """Do one's part, and return what one gets. A party runs once, a client as often as it asks.

        Args:
            x: rows of features: an array, a tensor, lists, a data frame, or columns by name. They
                take the place of the file that the job names for this party; prepare, rows
                and columns of the job apply to them as they would to the file. None to read that
                file, and for parties without rows.
            y: the class of each row, whole numbers from 0; or the column that the job calls label.
            model: of the owner of a model: a torch module with the layers that the job states, or
                its state; of a party that holds a share of a model, the ``shares`` of a training.

        Raises:
            DataError: what is given cannot be used.
            ConfigError: it is not this party's to give.
            RangeError: a value is beyond the bound that the job states.
            PartyError: another party failed, or went away; it says which.
        """
        ...


@contextmanager
def connect(
    job: str | Path, me: str, *, keys: str | Path = "keys", listen: str | None = None
) -> Iterator[Member]:
    """Join a job as one of its parties, or a service as one of its clients.

    The others may be Python programs like this one, or `tacit party` and `tacit serve` on their
    hosts: everyone has the same job file, and meets over TLS with the keys that it names. What one
    gives stays in this process but for shares and messages that the protocol sends; checkpoints
    and the parts of split models are kept beside the job's folder, as `tacit party` keeps them.

    Args:
        job: the job file, or what `tacit serve --client` wrote for a client of a service.
        me: which party or client we are.
        keys: the folder with our key, made by `tacit keys`.
        listen: host:port to listen on, if it is not where the others dial.

    Returns:
        A context manager. Its `run` takes our rows or our model and returns our answers. If the
        block fails, the others are told that we failed, and not what our data was.

    Raises:
        ConfigError: the job file is wrong, does not know us, or knows us by another key.
        PartyError: the others do not come, are not who they should be, or have another job.

    Guarantee: if every party follows the protocol (is semi-honest) and the dealer works together
    with nobody, that of the protocol which the job names; `Answer.result.claims` states it whole.
    """
    path = Path(job)
    loaded = load_job(path)
    if isinstance(loaded, ServeJob):
        with as_client(loaded, me, Path(keys)) as client:
            yield client
        return
    find_part(loaded)
    check_parties(loaded, me, path)
    kind_of(loaded).check_inputs(loaded, ())  # rows are given in Python
    usage = Usage()
    with (
        own_seat(loaded, me, keys=Path(keys), at=listen) as seat,
        sole_start(loaded, [me]),
    ):
        with met(seat, Progress()) as session:
            party = _Party(seat, session, usage)
            yield party
            if not party.has_run:
                raise ConfigError(f"{me!r} has joined and left without a part: call run() once")
        discard(party.checkpoints)


class _Party:
    """A party whose links are up."""

    def __init__(self, seat: Seat, session: Session, usage: Usage) -> None:
        self._seat = seat
        self._session = session
        self._usage = usage
        self.has_run = False
        self.checkpoints: tuple[Path, ...] = ()

    def run(
        self,
        x: Handed = None,
        y: Handed = None,
        *,
        model: nn.Module | Mapping[str, Tensor] | None = None,
    ) -> Answer:
        if self.has_run:
            raise ConfigError("a job is run once: join it again with tacit.connect")
        self.has_run = True
        weights = model.state_dict() if isinstance(model, nn.Module) else model
        given = Given(x=x, y=y, weights=weights)
        # Who takes its answers in Python has them: it publishes nothing.
        part = do_part(self._session, self._seat, self._usage, lambda part: None, given)
        self.checkpoints = part.checkpoints
        return Answer(
            values=part.values, weights=part.weights, shares=part.shares, result=part.result
        )


class _Client:
    """A client whose links to both servers are up."""

    def __init__(self, job: ServeJob, client: PredictionClient, tell: Tell) -> None:
        self._job = job
        self._client = client
        self._tell = tell

    def run(
        self,
        x: Handed = None,
        y: Handed = None,
        *,
        model: nn.Module | Mapping[str, Tensor] | None = None,
    ) -> Answer:
        if x is None or y is not None or model is not None:
            raise ConfigError("a client of a service gives rows, x, and nothing else")
        return Answer(values=self._client.ask(shape_questions(x, self._job), self._tell))


@contextmanager
def as_client(
    job: ServeJob, me: str, keys: Path, tell: Tell = lambda done, total: None
) -> Iterator[Member]:
    """Connect to both servers of a service, as one of its clients that hears of every block."""
    if me in job.parties:
        raise ConfigError(f"{me!r} is no client of this service: start it with `tacit serve`")
    job = job.with_keys(keys, may_make=False, whose=(*job.protocol.compute, me))
    identity = own_identity(job, me, keys)
    patience = replace(job.network, stall_s=min(job.network.stall_s, ANSWER_S))
    with connected(
        me,
        job,
        name=job.job.name,
        servers=job.server_peers(),
        identity=identity,
        patience=patience,
    ) as client:
        yield _Client(job, client, tell)
