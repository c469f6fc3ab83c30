"""A service of alice and bob, with carol as dealer or helper, and clients in threads."""

import threading
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from support.mpc import MEETING, PARTIES, ROLES
from tacit import ring
from tacit.inference.service import (
    PredictionClient,
    PredictionServer,
    ServiceTask,
    deal_predictions,
)
from tacit.inference.service.spec import ServeProtection, ServeSpec, ServiceTable
from tacit.inference.spec import InferData, InferModel, InferProtection, InferSpec
from tacit.mpc import find_protocol
from tacit.nn import TorchOps, make_model, parse_layers
from tacit.party import run_threads
from tacit.transport import LinkLimits, Meter, Patience, memory_pair

CLIENTS = tuple(f"client-{number}" for number in range(8))
PATIENCE = Patience(connect_s=60, silence_s=60, heartbeat_s=1, stall_s=200)


@dataclass
class Service:
    """A running service, as a test sees it."""

    task: ServiceTask
    servers: dict
    weights: dict

    def links(self, client):
        """Connect a client; returns its ends of both links."""
        found = {}
        for name in ROLES.computing:
            mine, theirs = memory_pair(
                client,
                name,
                meter_a=Meter(client),
                meter_b=Meter(name),
                patience=PATIENCE,
                limits=LinkLimits(max_frame_bytes=1 << 24),
            )
            self.servers[name].queue.admit(theirs)
            found[name] = mine
        return found

    def client(self, client):
        return PredictionClient(client, self.task, self.links(client))

    def plain(self, rows):
        scores = self.task.model(TorchOps(), self.weights, self.task.prepare(rows))
        if self.task.spec.reveal == "score":
            return scores
        if self.task.model.outputs == 1:
            return (scores[:, 0] >= 0).double()
        return scores.argmax(-1).double()


def _shares_of(weights, frac_bits):
    prg = ring.Prg(b"k" * 16)
    first, second = {}, {}
    for name, value in weights.items():
        words = ring.encode(value.double(), frac_bits=frac_bits)
        first[name] = prg.words(tuple(words.shape))
        second[name] = words - first[name]
    return {ROLES.first: first, ROLES.second: second}


@pytest.fixture
def shares_of():
    return _shares_of


@pytest.fixture
def make_service_task():
    def make(
        *,
        layers=("dense 8", "relu", "dense 4"),
        inputs=(6,),
        protocol="permuted3",
        clients=CLIENTS,
        weight_bound=4.0,
        sizes=(1, 8, 32),
        **service,
    ):
        named = {"layers": layers, "inputs": inputs, "bound": weight_bound}
        told = {"kind": protocol, "dealer": ROLES.dealer, "compute": ROLES.computing}
        if (
            "second" in find_protocol(protocol).shows_to
        ):  # no service has it: this is for one question
            spec = InferSpec(
                data=InferData(owner=ROLES.second),
                model=InferModel(**named),
                protocol=InferProtection(**told),
            )
        else:
            doors = dict.fromkeys(ROLES.computing, "127.0.0.1:1")
            spec = ServeSpec(
                model=InferModel(**named),
                service=ServiceTable(doors=doors, sizes=sizes, **service),
                protocol=ServeProtection(**told),
            )
        model = make_model(parse_layers(layers, inputs, seed=3), inputs)
        return ServiceTask(spec=spec, name="s", model=model, clients=clients)

    return make


@pytest.fixture
def make_owned_task():
    """A task whose weights one server owns; of a model without layers also the sizes are told."""

    def make(owner, told=(), *, protocol="sealed", sizes=(1, 8, 32), service=None, **model):
        spec = ServeSpec(
            model=InferModel(owner=owner, **model),
            service=ServiceTable(
                doors=dict.fromkeys(ROLES.computing, "127.0.0.1:1"), sizes=sizes, **(service or {})
            ),
            protocol=ServeProtection(kind=protocol, dealer=ROLES.dealer, compute=ROLES.computing),
        )
        return ServiceTask.of(spec, name="s", clients=CLIENTS, told=told)

    return make


@pytest.fixture
def serving():
    @contextmanager
    def start(task, owned=None, **how):
        weights = {name: value.double() for name, value in (owned or task.model.initial).items()}
        held = _shares_of(weights, task.spec.frac_bits)
        if task.owner is not None:
            held = {name: weights if name == task.owner else {} for name in ROLES.computing}
        stop, ready = threading.Event(), threading.Barrier(3)
        service, ends = Service(task, {}, weights), {}

        def party(session):
            if session.me == ROLES.dealer:
                return deal_predictions(session, task)
            server = PredictionServer(session, task, held[session.me], **how)
            service.servers[session.me] = server
            ready.wait(200)
            return server.run(stop)

        def run():
            try:
                ends["ends"] = run_threads(dict.fromkeys(PARTIES, party), MEETING)
            except BaseException as error:
                ends["error"] = error

        thread = threading.Thread(target=run)
        thread.start()
        ready.wait(200)
        service.ends = ends
        try:
            yield service
        finally:
            stop.set()
            thread.join(200)
            assert not thread.is_alive()
        if "error" in ends:
            raise ends["error"]

    return start


@pytest.fixture
def rows():
    return torch.from_numpy(np.random.default_rng(5).uniform(-1, 1, (40, 6)))
