"""Jobs of kind "serve": the servers and the dealer of a prediction service, up until stopped."""

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Self

from torch import Tensor

from tacit.crypto import Identity, load_identity, load_pinned, make_identity, parse_name
from tacit.errors import ConfigError, IdentityError, InputError
from tacit.inference.forest import Forest
from tacit.inference.inputs import check_model, load_model
from tacit.inference.service import ServiceTask, load_share, plan_service
from tacit.inference.service.server import Note, Post, attend, foreseen
from tacit.inference.service.sized import Told, agree_on_sizes, sizes_of
from tacit.inference.service.spec import ServeSpec
from tacit.jobs.config import Fingerprint, Job, PartyEntry, job_digest, parse_address
from tacit.jobs.kind import Asked, Kind, Outlook, unread
from tacit.jobs.toml import read_toml
from tacit.mpc import find_protocol, sum_forecasts
from tacit.party import Meeting, Progress, Session, joined, merge_results, run_threads
from tacit.report.words import STAGES
from tacit.result import Result
from tacit.spec import Problem, RefusedError, read_record, refuse_together
from tacit.transport import Patience, Peer, listen

_WEEK_S = 7 * 86400.0
"""A service may be idle for this long."""


@dataclass(frozen=True, kw_only=True)
class ClientEntry:
    """[clients.NAME]: the key by which a client is known.

    Attributes:
        key: fingerprint of the client's certificate, as `tacit keys NAME` prints it; made at the
            first start if not given.
    """

    key: Fingerprint | None = None


@dataclass(frozen=True, kw_only=True)
class ServeJob(ServeSpec, Job):
    """A whole job file of kind "serve"."""

    clients: Mapping[str, ClientEntry]

    def __post_init__(self) -> None:
        refuse_together(super().__post_init__, self.check_parties, self._check_clients)

    @property
    def patience(self) -> Patience:
        """Return how long servers wait: for the next question, a week."""
        return replace(self.network, stall_s=max(self.network.stall_s, _WEEK_S))

    def task(self, told: Told = ()) -> ServiceTask:
        """Return what is served, of a model whose owner has told these sizes, if any."""
        return ServiceTask.of(self, name=self.job.name, clients=sorted(self.clients), told=told)

    def address(self, server: str) -> tuple[str, int]:
        """Return the address for a server's clients."""
        return parse_address(self.service.doors[server])

    def client_peers(self) -> dict[str, Peer]:
        """Return the clients, as a server knows them."""
        return {name: Peer(None, entry.key or "") for name, entry in self.clients.items()}

    def server_peers(self) -> dict[str, Peer]:
        """Return the servers, as a client dials them."""
        return {
            name: Peer(self.address(name), self.parties[name].key or "")
            for name in self.protocol.compute
        }

    def with_keys(self, keys: Path, *, may_make: bool, whose: Sequence[str] = ()) -> Self:
        """Fill in the keys that the file leaves out, from a folder that holds all of them.

        So a service can be tried on one machine without pasting fingerprints.

        Args:
            keys: the folder.
            may_make: whether keys that are missing there are made.
            whose: the parties and clients whose keys are wanted; all of them if not said.

        Raises:
            ConfigError: the file has no key for someone, and the folder has none either.
        """
        wanted = set(whose or (*self.parties, *self.clients))
        missing_party = {n for n, entry in self.parties.items() if entry.key is None} & wanted
        missing_client = {n for n, entry in self.clients.items() if entry.key is None} & wanted
        missing = missing_party | missing_client
        found = {name: _identity(keys, name, may_make).fingerprint for name in sorted(missing)}
        parties = {
            name: replace(entry, key=found[name]) if name in missing_party else entry
            for name, entry in self.parties.items()
        }
        clients = {
            name: ClientEntry(key=found[name]) if name in missing_client else entry
            for name, entry in self.clients.items()
        }
        return replace(self, parties=parties, clients=clients)

    def _check_clients(self) -> None:
        """Refuse a client that is a party too, or another client: limits hold for each key."""
        if problems := tuple(self._wrong_clients()):
            raise RefusedError(*problems)

    def _wrong_clients(self) -> Iterator[Problem]:
        if not self.clients:
            yield Problem("clients", "wanted at least one client, got none")
        for name in self.clients:
            try:
                parse_name(name)
            except IdentityError as error:
                yield Problem("clients", str(error))
            if name in self.parties:
                yield Problem(f"clients.{name}", "has the name of a party; every key needs its own")
        seen = {
            entry.key: f"parties.{name}.key" for name, entry in self.parties.items() if entry.key
        }
        for name, entry in self.clients.items():
            if entry.key is not None and entry.key in seen:
                text = f"is the same as {seen[entry.key]}; everyone needs a key of its own"
                yield Problem(f"clients.{name}.key", text)
            elif entry.key is not None:
                seen[entry.key] = f"clients.{name}.key"


def load_service(path: Path) -> ServeJob:
    """Read and check a job file of kind "serve"."""
    raw = read_toml(path)
    head = raw.get("job")
    kind = head.get("kind") if isinstance(head, dict) else None
    if kind not in ("serve", None):
        raise ConfigError(f"{path}: job.kind: wanted 'serve', got {kind!r}; use `tacit run` for it")
    return read_record(raw, ServeJob, source=str(path))


def check_inputs(job: ServeJob, parties: Sequence[str]) -> None:
    """Point whoever starts a service like any other job to its own command.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(
        f"{job.job.name!r} is a service: start it with `tacit serve`, and ask it with `tacit ask`"
    )


def serve_here(
    path: Path, *, keys: Path, note: Note, stop: threading.Event, search: Sequence[Path] = ()
) -> Result:
    """Run the whole service in this process, to try it; only clients come over the network."""
    job = load_service(path).with_keys(keys, may_make=True)
    models, told = _models(job, job.protocol.compute, search)
    posts = _posts(job, models, keys, stop)
    meeting = Meeting(parties=tuple(job.parties), job_digest=job_digest(job), patience=job.patience)
    task = job.task(told or ())  # once: torch traces a module in one thread at a time

    def part(session: Session) -> Result:
        me = session.me
        agree_on_sizes(session, job, told)
        return attend(session, task, posts.get(me), role=job.role(me), note=note)

    results = run_threads(dict.fromkeys(job.parties, part), meeting)
    return replace(merge_results(tuple(results.values())), launched="threads")


def serve_as(
    path: Path,
    me: str,
    *,
    keys: Path,
    at: str | None,
    note: Note,
    stop: threading.Event,
    search: Sequence[Path] = (),
) -> Result:
    """Be one party of a service from this host; the first server ends it when told to stop."""
    job = load_service(path).with_keys(keys, may_make=False)
    if me not in job.parties:
        raise ConfigError(f"{path} has no party {me!r}; wanted one of {', '.join(job.parties)}")
    servers = [name for name in job.protocol.compute if name == me]
    models, mine = _models(job, servers, search)
    post = _posts(job, models, keys, stop).get(me)
    identity = own_identity(job, me, keys)
    address = at or job.parties[me].address
    meeting = Meeting(parties=tuple(job.parties), job_digest=job_digest(job), patience=job.patience)
    with ExitStack() as stack:
        listener = None
        if address is not None:
            listener = stack.enter_context(listen(*parse_address(address)))
        session = stack.enter_context(
            joined(
                me,
                meeting,
                peers=job.peers(me),
                identity=identity,
                listener=listener,
                progress=Progress(lambda stage, *_: note(f"{me}: {STAGES.get(stage, stage)}")),
            )
        )
        task = job.task(agree_on_sizes(session, job, mine))
        result = attend(session, task, post, role=job.role(me), note=note)
        session.finish()
        return replace(result, launched="remote")


def forecast(job: ServeJob, asked: Asked) -> Outlook:
    """Forecast the start of a service, and every size of a batch."""
    asked.refuse("rows") if job.model.is_linear else asked.refuse("rows", "features")
    task = job.task(_foreseen_sizes(job, asked))
    walk = plan_service(task, parties=tuple(job.parties))
    begun = "checked" if task.owner is None else f"shared by {task.owner}"
    lines = [f"The figures below are for starting: weights are {begun}, and opened under masks."]
    for size in task.sizes:
        cost = sum_forecasts((plan, 1) for plan in walk.plans_of(size)).cost
        volume = dict.fromkeys(("offline", "online"), 0)
        for one in cost.traffic:
            volume[one.phase] += one.payload_bytes
        many = "1 row" if size == 1 else f"up to {size} rows"
        lines.append(
            f"A batch of {many}: {volume['online']:,} B in {cost.online_rounds} rounds, "
            f"offline {volume['offline']:,} B; what goes to and from clients comes on top."
        )
    return Outlook(
        about=job.protocol.kind,
        lines=tuple(lines),
        forecast=sum_forecasts((plan, 1) for plan in walk.plans_of(0)),
        leaks=foreseen(task, walk),
        claims=find_protocol(job.protocol.kind).claims,
    )


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Give an event that Ctrl-C and a request to terminate set, instead of ending us midway."""
    stop = threading.Event()

    def set_it(number: int, frame: FrameType | None) -> None:
        stop.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    before = [signal.signal(number, set_it) for number in numbers] if is_main else []
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=False):
            signal.signal(number, handler)


def _foreseen_sizes(job: ServeJob, asked: Asked) -> Told:
    """Return what the owner will tell, from its model, which must be here, or as asked."""
    if not job.has_told_sizes:
        return ()
    if asked.features is not None:
        return (asked.features,)
    try:
        return sizes_of(load_model(job, asked.search))
    except InputError as error:
        if job.model.is_linear:
            raise unread(error, "--features") from error
        raise


Held = Mapping[str, Tensor]
"""What a server holds of the model: its shares, all weights if it owns them, or nothing."""


def _models(
    job: ServeJob, servers: Sequence[str], search: Sequence[Path]
) -> tuple[dict[str, Held], Told | None]:
    """Load what servers hold of the model, and what its owner tells if it is among them."""
    held: dict[str, Held] = {}
    told = None
    for name in servers:
        if job.model.owner is None:
            path = job.model.shares.get(name)
            if path is None:
                raise ConfigError(f"model.shares.{name}: missing; wanted the file with its share")
            held[name] = load_share(path, frac_bits=job.frac_bits, bound=job.weight_bound)
        elif job.model.owner == name:
            check_model(job.model)
            model = load_model(job, search)
            told = sizes_of(model) if job.has_told_sizes else ()
            held[name] = model.weights if isinstance(model, Forest) else model
        else:
            held[name] = {}
    return held, told


def _posts(
    job: ServeJob, models: Mapping[str, Held], keys: Path, stop: threading.Event
) -> dict[str, Post]:
    """Make servers ready: what they hold, their keys, and who may ask them."""
    return {
        name: Post(
            model=model,
            identity=own_identity(job, name, keys),
            address=job.address(name),
            clients=job.client_peers(),
            patience=job.patience,
            stop=stop,
        )
        for name, model in models.items()
    }


def own_identity(job: ServeJob, me: str, keys: Path) -> Identity:
    """Load a key, and make sure that it is the one that the job names.

    Raises:
        ConfigError: the job knows nobody of that name, or by another key.
    """
    entry: PartyEntry | ClientEntry | None = job.parties.get(me) or job.clients.get(me)
    if entry is None:
        known = ", ".join((*job.parties, *job.clients))
        raise ConfigError(f"the job knows no {me!r}; it has {known}")
    table = "parties" if me in job.parties else "clients"
    return load_pinned(keys, me, entry.key, table=table)


def _identity(keys: Path, name: str, may_make: bool) -> Identity:
    try:
        return load_identity(keys, name)
    except IdentityError as error:
        if may_make:
            return make_identity(name, keys)
        raise ConfigError(
            f"the job has no key for {name!r}, and {keys} holds none: run `tacit keys {name}` "
            "where it is, and paste the line it prints"
        ) from error


KIND = Kind(record=ServeJob, check_inputs=check_inputs, forecast=forecast)
