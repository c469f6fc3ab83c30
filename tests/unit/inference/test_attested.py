"""Models in an enclave: values, order of operations, blinded products, and what is refused."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import tacit
from tacit.crypto import make_identity
from tacit.errors import ConfigError, DisagreementError, InputError, PartyError
from tacit.inference import attested
from tacit.inference.attested import ObliviousOps, SlalomOps, TracedOps
from tacit.mpc.outsource import Outsourcing, outsourced
from tacit.nn import TorchOps, import_module
from tacit.party import (
    Meeting,
    SimulatedEnclave,
    enclave,
    run_threads,
    seal_file,
    unseal_file,
    without_setup,
)
from tacit.ring import Prg, matmul


@pytest.fixture
def net():
    torch.manual_seed(3)
    layers = (nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(12, 4), nn.Softmax(dim=-1)).double()


def rows_of(count, seed=0):
    return torch.rand((count, 1, 4, 4), generator=torch.Generator().manual_seed(seed)).double()


def test_answers_are_plaintext_at_the_cost_of_rows_and_answers_and_nothing_is_promised(net):
    x, private = rows_of(5), tacit.secure(net, protocol="enclave")
    answer = private(x)
    assert torch.allclose(answer.values, net(x))
    assert without_setup(answer.cost) == answer.result.forecast.cost
    assert answer.result.forecast.cost == private.forecast(tuple(x.shape)).cost
    said = [one.guarantee for one in answer.result.claims]
    assert all(one.startswith("no guarantee") for one in said)
    assert any("simulated" in one for one in said)
    assert "no guarantee: simulated" in answer.result.notes[0]
    assert "no guarantee: simulated" in private.lines(tuple(x.shape))[1]
    assert {one.to for one in answer.ledger if one.kind == "protocol"} == {"server"}
    classes = tacit.secure(net, protocol="enclave", reveal="class")(x)
    assert torch.equal(classes.values, net(x).argmax(dim=-1).double())


def test_trees_and_estimators_run_inside():
    x = torch.rand((40, 3), generator=torch.Generator().manual_seed(1)).double()
    y = (x[:, 0] + x[:, 1] > 1).long()
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(x.numpy(), y.numpy())
    found = tacit.secure(tree, protocol="enclave", reveal="class")(x)
    assert torch.equal(
        found.values.reshape(-1).round().long(), torch.tensor(tree.predict(x.numpy()))
    )


def test_another_job_and_one_changed_byte_of_code_are_refused_before_rows_are_sent(
    net, tmp_path, monkeypatch
):
    private, lab = tacit.secure(net, protocol="enclave"), make_identity("server", tmp_path)
    other = tacit.secure(net[:4], protocol="enclave")  # another model is another job
    assert private.digest != other.digest
    sent = []
    monkeypatch.setattr(
        attested.Attested, "_exchange", lambda self, session, x: sent.append(x) or (None, None)
    )
    with pytest.raises(DisagreementError, match=r"'server'.*other code or another job"):
        private.attested(rows_of(1), lab, SimulatedEnclave(lab, other.digest))
    copy = tmp_path / "tacit"
    shutil.copytree(Path(tacit.__file__).parent, copy, ignore=shutil.ignore_patterns("*.pyc"))
    changed = copy / "inference" / "attested.py"
    changed.write_bytes(changed.read_bytes().replace(b"once", b"0nce", 1))
    with monkeypatch.context() as patched:
        patched.setattr(tacit, "__file__", str(copy / "__init__.py"))
        inside = SimulatedEnclave(lab, private.digest)
    with pytest.raises(DisagreementError, match=r"'server'.*other code or another job"):
        private.attested(rows_of(1), lab, inside)
    assert all(x is None for x in sent)  # the server waits in vain


def test_the_order_of_operations_is_the_same_for_all_rows_of_a_shape(net):
    private = tacit.secure(net, protocol="enclave", reveal="class")
    assert private.trace(rows_of(4)) == private.trace(-5 * rows_of(4, seed=9))
    assert len(private.trace(rows_of(4))) > 8
    ops = TracedOps(ObliviousOps())
    table = torch.rand((7, 2), generator=torch.Generator().manual_seed(0)).double()
    ids = torch.tensor([[0.0, 6.0], [3.0, 3.0]]).double()
    assert torch.equal(ops.embedding(table, ids), TorchOps().embedding(table, ids))

    def branching(ops, weights, x):  # a program that looks is seen by this test
        return ops.scale(x, 2.0) if float(x.sum()) > 0 else ops.shift(x, 1.0)

    looks = tacit.secure(branching, protocol="enclave", weights={})
    assert looks.trace(torch.ones(1, 2)) != looks.trace(-torch.ones(1, 2))


class Watching:
    """A worker that remembers what it was given, and may lie."""

    name = "accelerator"

    def __init__(self, lie=0):
        self.seen, self.lie = [], lie

    def multiply(self, left, right, kept=0):
        self.seen.append(left.clone())
        found = matmul(left, right)
        found[0, 0] += self.lie
        return found

    def forget(self, kept):
        pass


@contextmanager
def given_to(worker):
    with outsourced(Outsourcing(worker, Prg.from_os(), least_terms=1, thin_rows=1)) as current:
        yield current


def complaints(net, x):
    """Say what a worker could learn of rows, or get past the enclave."""
    model, found = import_module(net), []
    views = []
    for _ in range(2):
        worker = Watching()
        with given_to(worker):
            ops = SlalomOps(prg=Prg.from_os(), least_terms=1)
            ops.prepare(model, model.weights, tuple(x.shape))
            values = model(ops, model.weights, x)
        if (values - net(x)).abs().max() > 1e-4:
            found.append("the answer is wrong")
        views.append(torch.cat([one.flatten() for one in worker.seen]))
    if len(worker.seen) != 2:
        found.append("products were not given away")
    if bool((views[0] == views[1]).any()):
        found.append("the worker sees the same words twice")
    top = (views[0] >> 60).double()  # rows have small numbers: all top bits would be alike
    if float(top.std()) < 3:
        found.append("what the worker sees is not uniform")
    return found


def test_large_products_are_blinded_and_a_missing_pad_is_noticed(net, monkeypatch):
    x = rows_of(8)
    assert complaints(net, x) == []
    monkeypatch.setattr(Prg, "words", lambda self, shape: torch.zeros(shape, dtype=torch.int64))
    assert any("twice" in one for one in complaints(net, x))


def test_a_pad_is_used_once_and_a_worker_that_lies_is_named(net):
    x, model = rows_of(3), import_module(net)
    with given_to(Watching()):
        ops = SlalomOps(prg=Prg.from_os(), least_terms=1)
        ops.prepare(model, model.weights, tuple(x.shape))
        model(ops, model.weights, x)
        with pytest.raises(IndexError):  # a second run has no pads left
            model(ops, model.weights, x)
    for lie in (1, 1 << 40, -(1 << 63)):
        ops = SlalomOps(prg=Prg.from_os(), least_terms=1)
        ops.prepare(model, model.weights, tuple(x.shape))
        with given_to(Watching(lie)), pytest.raises(PartyError, match=r"'accelerator'.*product 1"):
            model(ops, model.weights, x)


def test_the_server_gives_products_away_where_its_party_has_a_worker(net):
    x, worker, private = rows_of(6), Watching(), tacit.secure(net, protocol="enclave")

    def party(session):
        if session.me == "client":
            return private.join(session, x)
        with given_to(worker):
            return private.join(session)

    meeting = Meeting(parties=("client", "server"), job_digest=bytes(32))
    answers = run_threads(dict.fromkeys(meeting.parties, party), meeting)
    assert len(worker.seen) == 2
    assert (answers["client"].values - net(x)).abs().max() < 1e-4


def test_a_sealed_file_opens_for_the_same_code_job_and_name_alone(tmp_path):
    lab = make_identity("lab", tmp_path)
    plain, kept = tmp_path / "w.npz", tmp_path / "w.sealed"
    plain.write_bytes(b"weights" * 100)
    inside = SimulatedEnclave(lab, bytes(32))
    seal_file(inside, plain, kept)
    assert b"weights" not in kept.read_bytes()
    assert unseal_file(inside, kept) == plain.read_bytes()
    with pytest.raises(InputError, match="does not open"):
        unseal_file(SimulatedEnclave(lab, b"x" * 32), kept)
    renamed = kept.rename(tmp_path / "other.sealed")
    with pytest.raises(InputError, match="does not open"):
        unseal_file(inside, renamed)
    broken = bytearray(renamed.read_bytes())
    broken[40] ^= 1
    kept.write_bytes(broken)
    with pytest.raises(InputError, match="does not open"):
        unseal_file(inside, kept)
    assert enclave.measure(bytes(32)) == inside.measurement


def test_what_an_enclave_has_no_use_for_is_refused(net):
    for options in ({"frac_bits": 16}, {"cap": 4.0}):
        with pytest.raises(ConfigError):
            tacit.secure(net, protocol="enclave", **options)


def test_rows_of_another_width_are_refused_in_our_words():
    private = tacit.secure(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), protocol="enclave")
    wrong = torch.zeros((2, 99))
    with pytest.raises(InputError, match=r"takes no rows of shape \(99,\): its first weights, "):
        private(wrong)
    with pytest.raises(InputError, match="takes no rows"):
        private.forecast((2, 99))
