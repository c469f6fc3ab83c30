"""A federated job on Flower: its simulation, and the two apps of a real deployment.

On real nodes the job file lies on every node; its path is the value ``job`` in the node's config
(clients) or in the run's config (server). A client trains on the rows of its own file.
"""

import logging
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from tacit.cli.environment import data_folders
from tacit.cli.jobs.federated import files_of, judge_of
from tacit.cli.jobs.federated_data import (
    Shards,
    load_shards,
    make_learner,
    make_model,
)
from tacit.cli.jobs.federated_job import FederatedJob
from tacit.cli.launch.member import write_files
from tacit.cli.toml import read_record, read_toml
from tacit.errors import ConfigError, IdentityError, PartyError
from tacit.learn.federated import FederatedSpec, Learner, Outcome, flatten, run_rounds
from tacit.learn.federated.flower import App, FlowerCarrier, client_mod, flat_arrays, named_arrays
from tacit.learn.federated.rounds import Judge, OnRound
from tacit.learn.federated.silo import Silo
from tacit.ring import Prg

_WAIT_S = 120.0


def simulate(
    job: FederatedJob,
    search: tuple[Path, ...],
    *,
    judge: Judge,
    on_round: OnRound,
) -> Outcome:
    """Run the job with Flower's simulation: every client a node, in as many workers as cores.

    Raises:
        PartyError: the simulation ended without a result.
    """
    found: list[Outcome] = []
    app, spec = ServerApp(), job.spec()
    shuffling = None
    if spec.shuffler is not None:
        made = X25519PrivateKey.generate()
        spec = replace(spec, shuffler=made.public_key().public_bytes_raw())
        shuffling = made.private_bytes_raw()  # as bytes: the app is sent to other processes

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        found.append(_serve(job, spec, grid, search, judge, on_round))

    nodes = job.federated.clients + (job.federated.aggregator == "shuffled")
    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tacit-") as journal:
        run_simulation(
            app,
            make_client_app(job, spec, search, Path(journal), shuffling),
            num_supernodes=nodes,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
    if not found:
        raise PartyError("server", "Flower's simulation ended without a result; see its log")
    return found[0]


def make_client_app(
    job: FederatedJob,
    spec: FederatedSpec,
    search: tuple[Path, ...],
    journal: Path,
    shuffling: bytes | None,
) -> ClientApp:
    """Make the app of a simulated client: it trains on its part of the rows, behind the mod.

    Where the job names keys, every simulated client gets a new one in place of the one named.
    """
    secrets = list[bytes]()
    if spec.keys is not None:
        made = [Ed25519PrivateKey.generate() for _ in range(spec.clients)]
        secrets = [key.private_bytes_raw() for key in made]
        spec = replace(spec, keys=frozenset(key.public_key().public_bytes_raw() for key in made))

    def guard_one(message: Message, context: Context, app: App) -> Message:
        number = int(context.node_config["partition-id"])
        is_known = number < len(secrets)
        key = Ed25519PrivateKey.from_private_bytes(secrets[number]) if is_known else None
        secret = None if shuffling is None else X25519PrivateKey.from_private_bytes(shuffling)
        silo = None
        if spec.privacy.kind == "record":
            silo = Silo(learner, number, ledger=journal / f"client {number}.ledger")
        mod = client_mod(spec, signing=key, shuffling=secret, journal=journal, silo=silo)
        return mod(message, context, app)

    def learner() -> Learner:
        return make_learner(job, load_shards(job.data, job.federated.clients, search))

    app = ClientApp(mods=[guard_one])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(context.node_config["partition-id"])
        return _train(job, load_shards(job.data, job.federated.clients, search), client, message)

    return app


def _train(job: FederatedJob, shards: Shards, client: int, message: Message) -> Message:
    before = torch.from_numpy(flat_arrays(message.content.array_records["arrays"]))
    (update,) = make_learner(job, shards).updates(
        before.to(job.train.device), [client], Prg.from_os()
    )
    arrays = named_arrays(make_model(job, shards))(before.numpy() + update.values)
    return _trained(message, arrays, update.weight)


def _trained(message: Message, arrays: ArrayRecord, examples: int) -> Message:
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})})
    return Message(content=content, reply_to=message)


def _serve(
    job: FederatedJob,
    spec: FederatedSpec,
    grid: Grid,
    search: tuple[Path, ...],
    judge: Judge,
    on_round: OnRound,
) -> Outcome:
    model = make_model(job, load_shards(job.data, 1, search))
    carrier = FlowerCarrier(grid, spec, named_arrays(model), timeout_s=_WAIT_S)
    carrier.meet()
    return run_rounds(carrier, flatten(model), spec, judge=judge, on_round=on_round)


def _load(path: object) -> FederatedJob:
    file = Path(str(path))
    return read_record(read_toml(file), FederatedJob, source=str(file))


def _guard_own(message: Message, context: Context, app: App) -> Message:
    """Hold to the spec of the job file on this node, whatever the server says."""
    spec = _load(context.node_config["job"]).spec()
    journal = context.node_config.get("journal", context.node_config.get("diary"))
    mod = client_mod(
        spec,
        signing=_signing_key(context),
        shuffling=_shuffling_key(context),
        journal=None if journal is None else Path(str(journal)),
        silo=_own_silo(context) if spec.privacy.kind == "record" else None,
    )
    return mod(message, context, app)


def _own_silo(context: Context) -> Silo:
    """Put the ledger beside the rows, unless the node's config says where it lies.

    Nodes get new numbers when they join again, and runs when they are started; the rows stay.
    """
    job = _load(context.node_config["job"])
    named = context.node_config.get("ledger")
    if named is None and job.data.file is None:
        raise ConfigError(
            "privacy 'record' wants the node's own rows in data.file, or ledger in its node config"
        )
    ledger = Path(f"{job.data.file}.ledger" if named is None else str(named)).absolute()
    return Silo(lambda: make_learner(job, _own_shards(job)), 0, ledger=ledger)


def _own_shards(job: FederatedJob) -> Shards:
    if job.data.files:
        raise ConfigError("data.files is for simulated clients: a node names its rows in data.file")
    return load_shards(job.data, 1, data_folders())


def _signing_key(context: Context) -> Ed25519PrivateKey | None:
    key = _read_key(context, "signing")
    if key is None or isinstance(key, Ed25519PrivateKey):
        return key
    raise IdentityError("the node's signing key is of another kind than Ed25519")


def _shuffling_key(context: Context) -> X25519PrivateKey | None:
    key = _read_key(context, "shuffling")
    if key is None or isinstance(key, X25519PrivateKey):
        return key
    raise IdentityError("the node's shuffling key is of another kind than X25519")


def _read_key(context: Context, name: str) -> object:
    """Read the private key that the node's config names, if it does: a PEM file."""
    given = context.node_config.get(name)
    if given is None:
        return None
    file = Path(str(given))
    try:
        return serialization.load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise IdentityError(f"{file} cannot be read as a private key: {error}") from error


client_app = ClientApp(mods=[_guard_own])
server_app = ServerApp()


@client_app.train()
def train_own(message: Message, context: Context) -> Message:
    """Train on all rows of this node's own data."""
    job = _load(context.node_config["job"])
    return _train(job, _own_shards(job), 0, message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Run the job of the run's config, and write its ledger, rounds and weights to ``out``."""
    job, search = _load(context.run_config["job"]), data_folders()
    shards = load_shards(job.data, 1, search)
    spec = job.spec()
    outcome = _serve(job, spec, grid, search, judge_of(job, shards), lambda report: None)
    out = Path(str(context.run_config["out"]))
    out.mkdir(parents=True, exist_ok=True)
    write_files(files_of(job, shards, outcome), out)
