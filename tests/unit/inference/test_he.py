"""Models on ciphertexts: values, cost, what is refused, and what either side sees."""

from math import log2

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.crypto.cipher import saved, slots
from tacit.crypto.cipher.slots import MOST_MODULUS_BITS, Noise, OwnSlotKeys, SlotKeys, SlotRing
from tacit.errors import (
    ConfigError,
    DataError,
    DisagreementError,
    FrameError,
    InputError,
    TacitError,
)
from tacit.inference.he import secured
from tacit.inference.he.circuit import CircuitOps, trace
from tacit.inference.he.layouts import InRow, InSlots
from tacit.inference.he.packing import choose_packing
from tacit.inference.he.parameters import Parameters, choose, make_whole
from tacit.inference.he.secured import Enciphered
from tacit.nn import Square, TorchOps
from tacit.nn.ops import Ops
from tacit.party import Meeting, run_threads, without_setup
from tacit.ring import Prg

pytest.importorskip("tenseal")
W = {
    "matrix": torch.linspace(-1, 1, 24).double().reshape(6, 4),
    "kernel": torch.linspace(-1, 0.9, 16).double().reshape(2, 2, 2, 2),
    "half": torch.linspace(-0.5, 0.5, 8).double().reshape(4, 1, 1, 2),
    "row": torch.linspace(0.1, 0.7, 6).double(),
    "line": torch.linspace(-0.3, 0.4, 6).double().reshape(1, 2, 3),
}
P = torch.linspace(-0.4, 0.8, 6).double()
FLAT, IMAGE = (3, 6), (3, 2, 4, 5)

# Every verb that the circuit has, by name: a program, and the shape of its rows.
VERBS = {
    "add": (lambda ops, w, x: ops.add(x, w["row"]), FLAT),
    "sub": (lambda ops, w, x: ops.sub(w["row"], x), FLAT),
    "mul": (lambda ops, w, x: ops.mul(ops.mul(x, w["row"]), x), FLAT),
    "square": (lambda ops, w, x: ops.square(x), FLAT),
    "matmul": (lambda ops, w, x: ops.matmul(x, w["matrix"]), FLAT),
    "scale": (lambda ops, w, x: ops.scale(x, -0.25), FLAT),
    "shift": (lambda ops, w, x: ops.shift(x, 0.375), FLAT),
    "sum": (lambda ops, w, x: ops.sum(x, dim=-1), IMAGE),
    "reshape": (lambda ops, w, x: ops.reshape(x, (-1, 40)), IMAGE),
    "transpose": (lambda ops, w, x: ops.transpose(x, 1, 3), IMAGE),
    "take": (lambda ops, w, x: ops.take(x, (2, 0, 2), dim=2), IMAGE),
    "concatenate": (lambda ops, w, x: ops.concatenate([x, ops.scale(x, 2.0)], dim=1), FLAT),
    "conv2d": (
        lambda ops, w, x: ops.conv2d(x, w["kernel"], stride=(2, 1), padding=(1, 0)),
        IMAGE,
    ),
    "conv1d": (
        lambda ops, w, x: ops.conv1d(ops.reshape(x, (-1, 2, 3)), w["line"], stride=1, padding=1),
        FLAT,
    ),
    "avg_pool2d": (
        lambda ops, w, x: ops.avg_pool2d(x, size=(2, 2), stride=(2, 2), padding=(1, 0)),
        IMAGE,
    ),
    "weigh": (lambda ops, w, x: ops.weigh(x, P), FLAT),
    "offset": (lambda ops, w, x: ops.offset(x, P), FLAT),
    "project": (lambda ops, w, x: ops.project(x, W["matrix"]), FLAT),
    "mix": (lambda ops, w, x: ops.mix(x, w["matrix"]), FLAT),
    "lookup": (lambda ops, w, x: ops.lookup(w["matrix"], x), FLAT),
    "piecewise": (lambda ops, w, x: ops.piecewise(x, (), ((0.5, -1.0, 0.25, 0.5),)), FLAT),
    "within": (lambda ops, w, x: ops.within(ops.scale(x, 2.0), x, gain=2.0), FLAT),
    "reaches": (lambda ops, w, x: (ops.reaches(x, bound=1e9), x)[1], FLAT),
    "shape": (lambda ops, w, x: ops.scale(x, float(ops.shape(x)[-1])), FLAT),
}
GROUPED = (
    lambda ops, w, x: ops.conv2d(
        x, w["half"], stride=(1, 1), padding=(0, 1), dilation=(1, 2), groups=2
    ),
    IMAGE,
)
SECRETS = (
    lambda ops, w, x: ops.matmul(
        ops.reshape(x, (-1, 2, 3)), ops.transpose(ops.reshape(x, (-1, 2, 3)), 1, 2)
    ),
    FLAT,
)


def rows_of(shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).double() * 2 - 1


def exact(whole, rows):
    """Evaluate a circuit of whole numbers in Python's integers."""
    vectors = [whole.encode(rows).astype(object)]

    def value(one):
        found = np.tile(np.array(one.offset, object), (len(rows), 1))
        for name, part in one.parts.items():
            found = found + vectors[name] @ np.vectorize(int, otypes=[object])(part.toarray()).T
        return found

    for left, right in whole.products:
        vectors.append(value(left) * value(right))
    return value(whole.out)


@pytest.mark.parametrize("verb", [*VERBS, "grouped", "secrets"])
def test_every_verb_of_a_circuit_is_torchs_and_its_range_holds(verb):
    program, shape = {**VERBS, "grouped": GROUPED, "secrets": SECRETS}[verb]
    x = rows_of(shape)
    whole = make_whole(trace(program, W, shape), bits=14, bound=1.0)
    found = exact(whole, x.reshape(3, -1).numpy())
    wanted = program(TorchOps(), W, x)
    real = torch.from_numpy((found * 2.0**-whole.out.scale).astype(float)).reshape(wanted.shape)
    assert torch.allclose(real, wanted, atol=2e-3)
    assert max(map(abs, found.ravel().tolist())) < 2 ** (whole.range_bits - 1)


@pytest.mark.slow
@pytest.mark.parametrize("verb", [*VERBS, "grouped", "secrets"])
def test_every_verb_is_exact_on_ciphertexts(verb):
    program, shape = {**VERBS, "grouped": GROUPED, "secrets": SECRETS}[verb]
    x = rows_of(shape)
    private = tacit.secure(program, protocol="he", weights=W, frac_bits=6, bound=1.0)
    answer = private(x)
    _, whole = private.packing(shape, 1.0)
    wanted = exact(whole, x.reshape(3, -1).numpy()) / 2**whole.out.scale
    assert answer.values.reshape(3, -1).tolist() == wanted.astype(float).tolist()
    assert without_setup(answer.cost) == answer.result.forecast.cost


def test_every_other_verb_is_refused_by_its_name():
    verbs = [name for name in dir(Ops) if not name.startswith("_") and name not in VERBS]
    assert {"relu", "sigmoid", "argmax", "softmax", "max_pool2d", "cap", "div"} <= set(verbs)
    whole = trace(lambda ops, w, x: x, {}, FLAT).out
    for verb in verbs:
        with pytest.raises(ConfigError, match=rf"{verb} cannot be computed under protocol 'he'.*"):
            getattr(CircuitOps(), verb)(whole)
    for program in (
        lambda ops, w, x: ops.piecewise(x, (0.0,), ((0.0,), (0.0, 1.0))),
        lambda ops, w, x: ops.sum(x, dim=0),
        lambda ops, w, x: ops.reshape(x, (2, 3)),
        lambda ops, w, x: w["row"],
    ):
        with pytest.raises(ConfigError):
            trace(program, W, FLAT)
    with pytest.raises(ConfigError, match=r"layer 1: relu cannot.*ops.square"):
        tacit.secure(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), protocol="he")(torch.ones(1, 2))


class Net(nn.Module):
    """A convolution, a norm, a product of two values and a skip connection."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 2, 2, stride=2), nn.BatchNorm2d(2)
        self.dense, self.gate = nn.Linear(8, 5), nn.Linear(8, 5)
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        hidden = self.norm(self.conv(x)).flatten(1)
        return self.out(self.dense(hidden) * self.gate(hidden)) + x[:, 0, 0, :3]


@pytest.fixture
def net():
    torch.manual_seed(4)
    return Net().double().eval()


def as_told(private, x, layout, monkeypatch):
    """Run with one layout, whatever would be cheaper."""

    def chosen(circuit, work, *, depth):
        is_row = isinstance(work.func.__self__, InRow)
        return choose(circuit, work, depth=depth)[0], float(is_row != (layout == "row"))

    monkeypatch.setattr("tacit.inference.he.packing.choose", chosen)
    answer = private(x)
    assert private.packing(tuple(x.shape), 1.0)[0].layout == layout
    return answer


@pytest.mark.parametrize("layout", ["slots", "row"])
def test_both_layouts_give_the_whole_numbers_exactly_at_the_cost_that_was_forecast(
    net, layout, monkeypatch
):
    x = rows_of((2, 1, 4, 4))
    private = tacit.secure(net, protocol="he", frac_bits=3, bound=1.0)
    answer = as_told(private, x, layout, monkeypatch)
    _, whole = private.packing(tuple(x.shape), 1.0)
    wanted = exact(whole, x.reshape(2, -1).numpy())
    assert torch.equal(answer.values, torch.from_numpy((wanted / 2**whole.out.scale).astype(float)))
    assert (answer.values - net(x)).abs().max() < 1
    assert without_setup(answer.cost) == answer.result.forecast.cost
    assert answer.result.forecast == private.forecast(tuple(x.shape))
    assert (answer.cost.offline_rounds, answer.cost.online_rounds) == (1, 2)
    seen = {one.to: one.kind for one in answer.ledger if one.kind != "size"}
    assert seen == {"client": "output"}  # the server has no entry but sizes


@pytest.mark.parametrize("rows", [1, 4100])
def test_one_linear_layer_goes_by_coefficients_for_a_row_and_in_slots_for_many(rows):
    torch.manual_seed(1)
    layer, x = nn.Linear(300, 40).double(), rows_of((rows, 300))
    if rows > 1:
        layer, x = nn.Linear(2, 3).double(), rows_of((8192 + 5, 2))  # two flights
    private = tacit.secure(layer, protocol="he", bound=1.0)
    answer = private(x)
    assert private.packing(tuple(x.shape), 1.0)[0].layout == (
        "slots" if rows > 1 else "coefficients"
    )
    assert (answer.values - layer(x)).abs().max() < 1e-3
    assert without_setup(answer.cost) == answer.result.forecast.cost
    assert answer.cost.online_rounds == (4 if rows > 1 else 2)


def two_squares():
    torch.manual_seed(2)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(9, 12), nn.Linear(12, 6), nn.Linear(6, 2)

        def forward(self, x):
            return self.c(self.b(self.a(x).square()).square())

    return tacit.nn.import_module(Two().double())


@pytest.mark.parametrize("layout", [InSlots, InRow])
def test_two_squares_are_exact_and_noise_stays_below_what_the_plan_allows(layout, monkeypatch):
    model = two_squares()
    circuit = trace(model, model.weights, (1, 9))
    whole = make_whole(circuit, bits=3, bound=1.0)
    arranged = layout(9, 2) if layout is InSlots else layout(circuit)
    parameters, _ = choose(whole, lambda ring: arranged.work(ring, whole), depth=2)
    ring = parameters.rings()[0]
    own = OwnSlotKeys(ring, arranged.steps(ring))
    keys = SlotKeys(ring, own.public, own.switching, arranged.steps(ring))
    left, released = [], SlotKeys.released

    def watched(self, part, *rest):
        left.append(own.budget(part))
        return released(self, part, *rest)

    monkeypatch.setattr(SlotKeys, "released", watched)
    arranged.prepare(keys, whole)
    sent = iter(list(arranged.encrypt(own, whole.encode(np.ones((1, 9))))))
    take, draw = lambda: keys.received(next(sent)), Prg.from_os().bytes
    found = arranged.decrypt(own, list(arranged.evaluate(keys, whole, take, 1, draw)), 1)
    wanted = exact(whole, np.ones((1, 9))) % ring.plain_modulus
    assert found.tolist() == wanted.tolist()
    noise = arranged.work(ring, whole).noise
    modulus = sum(map(log2, ring.moduli[:-1]))
    assert min(left) >= modulus - log2(ring.plain_modulus) - log2(noise) - 1
    assert Noise(ring).hides(noise)


def test_a_circuit_too_deep_is_refused_by_name_and_rings_are_of_128_bits():
    def deep(ops, w, x):
        for _ in range(12):
            x = ops.square(x)
        return x

    with pytest.raises(ConfigError, match="too deep for protocol 'he': 12 products"):
        choose_packing(deep, {}, FLAT, bits=8, bound=1.0)
    for degree, most in MOST_MODULUS_BITS.items():
        ring = SlotRing(
            degree=degree,
            plain_bits=22,
            primes=(most - 40) // 40,
            prime_bits=40,
            special_bits=40,
            number=0,
        )
        assert ring.context.parameters_set()
    with pytest.raises(ConfigError, match="128 bits of security"):
        Parameters.from_numbers((4096, 20, 1, 3, 60, 60, 3, 3))


def run_pair(private, x, *, client=None, server=None):
    """Run both sides, either of them as something else."""

    def party(session):
        if session.me == "client":
            return (client or private)._join(session, x)
        return (server or private)._join(session, None)

    meeting = Meeting(parties=("client", "server"), job_digest=private.digest)
    return run_threads(dict.fromkeys(meeting.parties, party), meeting)


def test_insecure_parameters_of_a_server_and_keys_of_another_run_are_refused(monkeypatch):
    private = tacit.secure(nn.Linear(3, 2), protocol="he", bound=1.0)
    told = secured.Packing.to_numbers
    monkeypatch.setattr(
        secured.Packing, "to_numbers", lambda self: (told(self)[0], 1024, *told(self)[2:])
    )
    with pytest.raises(DisagreementError, match=r"'server'.*128 bits of security"):
        run_pair(private, torch.ones(1, 3).double())
    monkeypatch.undo()
    send = secured._send

    def replayed(session, to, tag, data, phase="online"):
        old = bytes(16) if "key" in tag else data[:16]
        send(session, to, tag, old + data[16:], phase=phase)

    monkeypatch.setattr(secured, "_send", replayed)
    with pytest.raises(FrameError, match=r"'client'.*another job or run"):
        run_pair(private, torch.ones(1, 3).double())


@pytest.mark.parametrize("tag", ["he/key.0", "he/key.1", "he/rows", "he/answers"])
def test_garbage_in_a_message_is_blamed_on_its_sender(tag, monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2))
    x, send = rows_of((9000 if tag == "he/key.1" else 1, 3)), secured._send

    def broken(session, to, name, data, phase="online"):
        if name == tag:
            data = data[:40] + b"\xff" * 64 + data[104:]  # numbers above every modulus
        send(session, to, name, data, phase=phase)

    monkeypatch.setattr(secured, "_send", broken)
    sender = "server" if tag == "he/answers" else "client"
    with pytest.raises(DisagreementError, match=f"'{sender}'"):
        run_pair(tacit.secure(model, protocol="he", bound=1.0), x)


def test_a_client_that_cheats_asks_one_question_for_every_prime_and_the_claims_say_so():
    model = tacit.nn.import_module(nn.Sequential(nn.Linear(2, 3), Square(), nn.Linear(3, 1)))
    plan, whole = choose_packing(model, model.weights, (9000, 2), bits=8, bound=1.0)
    assert plan.layout == "slots"
    assert plan.parameters.moduli > 1
    client = plan.way.client()
    server = plan.way.server(client.keys(), whole)
    asked = [np.array([[7 * at, -at]]) for at, _ in enumerate(client.own)]  # no two rings alike
    sent = iter(
        data
        for keys, row in zip(client.own, asked, strict=True)
        for data in plan.way.arrangement.encrypt(keys, row)
    )
    answers = list(server.evaluate(lambda size: next(sent), 1, Prg.from_os().bytes))
    for keys, row, answer in zip(client.own, asked, answers, strict=True):
        wanted = exact(whole, row / 2.0**whole.input_scale) % keys.ring.plain_modulus
        assert keys.decrypt(answer)[:1].tolist() == wanted[0].tolist()
    claims = tacit.secure(nn.Linear(2, 2), protocol="he").claims()
    assert all(one.assumptions[0].startswith("every party follows") for one in claims[:2])


def test_equal_hidden_values_may_undo_each_other():
    model = nn.Sequential(nn.Linear(2, 3), Square(), nn.Linear(3, 2))
    with torch.no_grad():
        model[0].weight[:] = torch.tensor([[0.5, 0.25], [0.5, 0.25], [1.0, 0.5]])
        model[0].bias[:] = 0.0
        model[2].weight[:] = torch.tensor([[1.0, -1.0, 0.0], [1.0, -1.0, 0.5]])
    imported = tacit.nn.import_module(model)
    plan, whole = choose_packing(imported, imported.weights, (9000, 2), bits=8, bound=1.0)
    client = plan.way.client()
    rows = np.array([[1.0, -0.5]])
    sent = client.encrypt(np.rint(rows * 2.0**whole.input_scale).astype(np.int64))
    answers = plan.way.server(client.keys(), whole).evaluate(
        lambda size: next(sent), 1, Prg.from_os().bytes
    )
    assert client.decrypt(list(answers), 1).tolist() == exact(whole, rows).tolist()


def test_one_ciphertext_in_two_places_is_refused_before_weights_undo_it():
    """SEAL stops at sums that hide nothing; that it did would tell of opposite weights."""
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight[:] = torch.tensor([0.5, -0.5])
    imported = tacit.nn.import_module(nn.Sequential(model))
    plan, whole = choose_packing(imported, imported.weights, (9000, 2), bits=8, bound=1.0)
    client = plan.way.client()
    server = plan.way.server(client.keys(), whole)
    data = next(iter(client.encrypt(np.array([[3, 3]]))))
    with pytest.raises(DataError, match="one seed"):
        list(server.evaluate(lambda size: data, 1, Prg.from_os().bytes))


def test_what_he_cannot_do_is_said_where_it_is_asked_for(monkeypatch):
    for options, said in (
        ({"reveal": "class"}, "take reveal='output'"),
        ({"frac_bits": 30}, "from 2 to 24"),
        ({"cap": 4.0}, "nothing saturates"),
    ):
        with pytest.raises(ConfigError, match=said):
            tacit.secure(nn.Linear(2, 2), protocol="he", **options)
    with pytest.raises(ConfigError, match=r"unknown protocol 'HE'.* he and enclave"):
        tacit.secure(nn.Linear(2, 2), protocol="HE")
    private = tacit.secure(nn.Linear(2, 2), protocol="he", bound=1.0)
    with pytest.raises(
        InputError, match=r"the module: cannot multiply \(1, 3\) by weights of \(2, 2\)"
    ):
        private(torch.ones(1, 3))
    with pytest.raises(DataError, match="2 of 2 inputs are larger than the agreed bound ±1; raise"):
        private(torch.full((1, 2), 1.5))
    monkeypatch.setattr(saved, "sealapi", None)
    with pytest.raises(ConfigError, match=r"zstandard; run: pip install 'tacit-ml\[he\]'"):
        private(torch.ones(1, 2))
    assert isinstance(private, Enciphered)
    assert issubclass(ConfigError, TacitError)


def test_numbers_are_joined_from_residues():
    moduli = (1032193, 1146881, 1179649)
    numbers = np.array([0, 1, -1, 2**55, -(2**55)], object)
    residues = [(numbers % one).astype(np.int64) for one in moduli]
    assert slots.join(residues, moduli).tolist() == numbers.tolist()
