"""A task on Flower: its simulation, and the two apps of a real deployment.

A deployed node says in its own config what it holds to, whatever the server says: ``signing``,
``shuffling`` and ``authority`` name its private keys, ``secret`` what `provision` made for it,
``journal`` the folder of what it has answered, and ``book`` the file that counts what its rows
have spent.
"""

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.errors import ConfigError, IdentityError, PartyError
from tacit.federated.data import Shards
from tacit.federated.flower import App, FlowerCarrier, client_mod, flat_arrays, named_arrays
from tacit.federated.front import Task
from tacit.federated.journal import Silo
from tacit.federated.provision import provision
from tacit.federated.rounds import Judge, OnRound, Outcome, run_rounds
from tacit.federated.spec import HELPERS, FederatedSpec
from tacit.federated.training import flatten
from tacit.ring import Prg

try:
    from flwr.app import Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.simulation import run_simulation
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

_LOG = logging.getLogger(__name__)
_WAIT_S = 120.0


def simulate(task: Task, *, judge: Judge, on_round: OnRound) -> Outcome:
    """Run a task with Flower's simulation: every client a node, in as many workers as cores.

    Raises:
        PartyError: the simulation ended without a result.
    """
    found: list[Outcome] = []
    app = ServerApp()
    fed = task.spec.federated
    public_key, secrets = provision(task.spec, Prg.from_os())
    helping, signing = None, list[bytes]()
    if fed.identities is not None:  # of those that it names nobody here has the private halves
        made = [Ed25519PrivateKey.generate() for _ in fed.identities]
        signing = [key.private_bytes_raw() for key in made]
        keys = tuple(key.public_key().public_bytes_raw().hex() for key in made)
        fed = replace(fed, keys=keys)
    if fed.helper is not None:
        private = X25519PrivateKey.generate()
        public = private.public_key().public_bytes_raw().hex()
        is_shuffled = fed.aggregator == "shuffled"
        fed = replace(fed, shuffler=public) if is_shuffled else replace(fed, authority=public)
        helping = private.private_bytes_raw()  # as bytes: the app is sent to other processes

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        found.append(_serve(task, spec, grid, judge, on_round))

    logging.getLogger("flwr").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="tacit-") as folder:
        journal = Path(folder)
        if public_key is not None:  # named by its file, as on real nodes
            fed = replace(fed, public_key=journal / "clients.public")
            (journal / "clients.public").write_bytes(public_key)
        spec = replace(task.spec, federated=fed)
        run_simulation(
            app,
            make_client_app(task, spec, journal, helping, secrets, signing),
            num_supernodes=fed.clients + (fed.aggregator in HELPERS),
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
    if not found:
        raise PartyError("server", "Flower's simulation ended without a result; see its log")
    return found[0]


def make_client_app(
    task: Task,
    spec: FederatedSpec,
    journal: Path,
    helping: bytes | None,
    secrets: Sequence[bytes] = (),
    signing: Sequence[bytes] = (),
) -> ClientApp:
    """Make the app of a simulated client: it trains on its part of the rows, behind the mod."""

    def hold_one(message: Message, context: Context, app: App) -> Message:
        number = int(context.node_config["partition-id"])
        is_known = number < len(signing)
        key = Ed25519PrivateKey.from_private_bytes(signing[number]) if is_known else None
        own = None if helping is None else X25519PrivateKey.from_private_bytes(helping)
        # A helper needs no secret, but its mod is made as everyone's.
        secret = secrets[min(number, len(secrets) - 1)] if secrets else b""
        silo = None
        if spec.privacy.kind == "record":
            book = journal / f"client {number}.ledger"
            silo = Silo(lambda: task.learner(task.load()), number, book=book)
        mod = client_mod(
            spec,
            signing=key,
            shuffling=own,
            authority=own,
            secret=secret,
            journal=journal,
            silo=silo,
        )
        return mod(message, context, app)

    app = ClientApp(mods=[hold_one])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return _train(task, task.load(), int(context.node_config["partition-id"]), message)

    return app


def deploy_client(open_node: Callable[[Context], tuple[Task, Path | None]]) -> ClientApp:
    """Make the app of a real node.

    Args:
        open_node: says from its context what a node takes part in, whose ``load`` gives its own
            rows, as those of one client; and for privacy "record" the file that counts what these
            rows have spent. It belongs beside them: nodes get new numbers when they join again.
    """

    def hold_own(message: Message, context: Context, app: App) -> Message:
        """Hold to the node's own spec, whatever the server says."""
        (task, book), settings = open_node(context), context.node_config
        spec = task.spec
        journal = settings.get("journal")
        mod = client_mod(
            spec,
            signing=_signing_key(context),
            shuffling=_helper_key(context, "shuffling"),
            authority=_helper_key(context, "authority"),
            secret=_secret(context),
            journal=None if journal is None else Path(str(journal)),
            silo=_own_silo(task, book, context) if spec.privacy.kind == "record" else None,
        )
        return mod(message, context, app)

    app = ClientApp(mods=[hold_own])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Train on all rows of this node's own data."""
        task, _ = open_node(context)
        return _train(task, _own_rows(task), 0, message)

    return app


def deploy_server(
    open_task: Callable[[Context], Task], finish: Callable[[Context, Task, Outcome], None]
) -> ServerApp:
    """Make the app of a real server.

    Args:
        open_task: says what is run, from the context of the run; ``load`` gives rows to test on.
        finish: is given what came out.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        task = open_task(context)
        judge = task.judge(task.load())
        finish(context, task, _serve(task, task.spec, grid, judge, lambda report: None))

    return app


def _serve(task: Task, spec: FederatedSpec, grid: Grid, judge: Judge, on_round: OnRound) -> Outcome:
    model = task.build(task.load())
    carrier = FlowerCarrier(grid, spec, named_arrays(model), timeout_s=_WAIT_S)
    carrier.meet()
    return run_rounds(carrier, flatten(model), spec, judge=judge, on_round=on_round)


def _train(task: Task, shards: Shards, client: int, message: Message) -> Message:
    before = torch.from_numpy(flat_arrays(message.content.array_records["arrays"]))
    (update,) = task.learner(shards).updates(before.to(task.device), [client], Prg.from_os())
    arrays = named_arrays(task.build(shards))(before.numpy() + update.values)
    metrics = MetricRecord({"num-examples": update.weight})
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def _own_silo(task: Task, book: Path | None, context: Context) -> Silo:
    named = context.node_config.get("book", book)
    if named is None:
        raise ConfigError(
            "privacy 'record' wants the node's own rows in data.file, or book in its node config"
        )
    return Silo(lambda: task.learner(_own_rows(task)), 0, book=Path(str(named)).absolute())


def _own_rows(task: Task) -> Shards:
    """Load a node's rows; what is wrong with their sizes stays in its own log."""
    shards = task.load()
    if far := shards.state_far():
        _LOG.warning("%s", far)
    return shards


def _signing_key(context: Context) -> Ed25519PrivateKey | None:
    key = _read_key(context, "signing")
    if key is None or isinstance(key, Ed25519PrivateKey):
        return key
    raise IdentityError("the node's signing key is of another kind than Ed25519")


def _helper_key(context: Context, name: str) -> X25519PrivateKey | None:
    key = _read_key(context, name)
    if key is None or isinstance(key, X25519PrivateKey):
        return key
    raise IdentityError(f"the node's {name} key is of another kind than X25519")


def _secret(context: Context) -> bytes:
    """Read the secret that the node's config names, if it does."""
    given = context.node_config.get("secret")
    try:
        return b"" if given is None else Path(str(given)).read_bytes()
    except OSError as error:
        raise IdentityError(f"{given} cannot be read as a client's secret: {error}") from error


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
