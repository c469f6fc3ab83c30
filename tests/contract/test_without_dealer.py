"""The contract of a protocol, over two parties without a dealer: values, costs, ledger.

One run computes many verbs: what takes time here are messages, not examples.
"""

import pytest
import torch
import torch.nn.functional as F

from support.mpc import ALICE, BOB, CAROL, PARTIES, simulate
from support.operations import OPERATIONS, ULP, PlainOps
from tacit.errors import ConfigError, FrameError, InputError
from tacit.mpc import Roles, find_protocol, make_plan
from tacit.mpc.products import MatMul
from tacit.mpc.registry import NO_DEALER
from tacit.ring import Prg


def uniform(label, *shape, bound=8.0):
    words = Prg(b"u" * 16).fork(label).below(1 << 20, shape)
    return (words.double() / (1 << 19) - 1) * bound


def run_all(verbs, x, y, *, owners=(ALICE, BOB)):
    """Run many verbs of two operands in one program, and open each to everyone."""

    def program(ops):
        given = [
            ops.input(name, owner=owner, shape=tuple(value.shape), bound=64.0)
            for name, owner, value in zip("xy", owners, (x, y), strict=True)
        ]
        return [
            ops.open(verb(ops, *given), to=PARTIES, what=name, why="test")
            for name, verb in verbs.items()
        ]

    inputs = {name: {} for name in PARTIES}
    for name, owner, value in zip("xy", owners, (x, y), strict=True):
        inputs[owner][name] = value
    return simulate(program, protocol=NO_DEALER, inputs=inputs)


def test_every_operation_of_the_contract_suite():
    edges = torch.tensor([0.0, ULP, -ULP, 64.0, -64.0, 1.0], dtype=torch.float64)
    x = torch.cat((edges, uniform("x", 6, bound=64.0))).view(3, 4)
    y = torch.cat((uniform("y", 6, bound=64.0), edges)).view(3, 4)
    y[0, 0] = x[0, 0]  # for equality
    run = run_all({name: verb for name, (verb, _) in OPERATIONS.items()}, x, y)
    for at, (name, (verb, tolerance)) in enumerate(OPERATIONS.items()):
        wanted = verb(PlainOps(), x, y)
        for value in (run.values[ALICE][at], run.values[BOB][at], run.values[CAROL][at]):
            assert torch.allclose(value, wanted, rtol=0, atol=tolerance * ULP), name
    assert run.metered == run.plan.cost
    assert run.leaks[ALICE] == run.leaks[BOB] == run.plan.leaks
    assert all(leak.kind == "output" for leak in run.plan.leaks)


FUNCTIONS = {
    "max": (lambda ops, x, y: ops.max(x, dim=1), lambda x, y: x.amax(1), 1e-4),
    "argmax": (lambda ops, x, y: ops.argmax(x, dim=1), lambda x, y: x.argmax(1).double(), 0),
    "clamp": (lambda ops, x, y: ops.clamp(x, -1.0, 2.5), lambda x, y: x.clamp(-1, 2.5), 1e-4),
    "sign": (lambda ops, x, y: ops.sign(x), lambda x, y: x.sign(), 0),
    "gelu": (lambda ops, x, y: ops.gelu(x), lambda x, y: F.gelu(x), 4e-3),
    "softmax": (lambda ops, x, y: ops.softmax(x, dim=1), lambda x, y: x.softmax(1), 2e-3),
    "layer norm": (lambda ops, x, y: ops.layer_norm(x), lambda x, y: F.layer_norm(x, (4,)), 6e-3),
    "dropout of nothing": (lambda ops, x, y: ops.dropout(x, 0.0), lambda x, y: x, 1e-4),
}


def test_functions_of_every_family():
    x, y = uniform("x", 3, 4), uniform("y", 3, 4)
    run = run_all({name: verb for name, (verb, _, _) in FUNCTIONS.items()}, x, y)
    for value, (name, (_, plain, error)) in zip(run.values[ALICE], FUNCTIONS.items(), strict=True):
        assert torch.allclose(value, plain(x, y), rtol=0, atol=error), name
    assert run.metered == run.plan.cost


def heads(ops, x):
    return ops.reshape(x, (2, 2, 3, 2))


LAYOUTS = {
    "batches": (
        lambda ops, x, y: ops.matmul(heads(ops, x), ops.transpose(heads(ops, y), 2, 3)),
        lambda x, y: x.view(2, 2, 3, 2) @ y.view(2, 2, 3, 2).mT,
    ),
    "rows of batches": (
        lambda ops, x, y: ops.matmul(heads(ops, x), ops.reshape(y, (2, 12))),
        lambda x, y: x.view(2, 2, 3, 2) @ y.view(2, 12),
    ),
    "broadcast": (
        lambda ops, x, y: ops.mul(ops.reshape(x, (4, 1, 6)), ops.reshape(y, (4, 6, 1))),
        lambda x, y: x.view(4, 1, 6) * y.view(4, 6, 1),
    ),
    "convolution": (
        lambda ops, x, y: ops.conv2d(
            ops.reshape(x, (1, 2, 4, 3)), ops.reshape(y, (4, 1, 2, 3)),
            stride=(2, 1), padding=(1, 1), dilation=(1, 2), groups=2,
        ),
        lambda x, y: F.conv2d(
            x.view(1, 2, 4, 3), y.view(4, 1, 2, 3),
            stride=(2, 1), padding=(1, 1), dilation=(1, 2), groups=2,
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("owners", [(ALICE, BOB), (BOB, ALICE), (ALICE, ALICE), (CAROL, BOB)])
def test_products_of_all_layouts_whoever_owns_the_operands(owners):
    x, y = uniform("x", 24), uniform("y", 24)
    run = run_all({name: verb for name, (verb, _) in LAYOUTS.items()}, x, y, owners=owners)
    for value, (name, (_, plain)) in zip(run.values[BOB], LAYOUTS.items(), strict=True):
        assert torch.allclose(value, plain(x, y), rtol=0, atol=2e-3), name
    assert run.metered == run.plan.cost


def test_matrices_of_many_blocks_are_exact():
    """Whole numbers, whose product is known to the last place; both operands are shared."""
    x = Prg(b"p" * 16).fork("x").below(201, (40, 300)).double() - 100
    y = Prg(b"p" * 16).fork("y").below(201, (300, 70)).double() - 100

    def program(ops):
        a = ops.input("x", owner=ALICE, shape=(40, 300), bound=100.0, frac_bits=0)
        b = ops.input("y", owner=BOB, shape=(300, 70), bound=100.0, frac_bits=0)
        whole = ops.matmul_whole(ops.add(a, a), ops.add(b, b))
        return ops.open(whole, to=(ALICE,), what="product", why="test")

    run = simulate(program, protocol=NO_DEALER, inputs={ALICE: {"x": x}, BOB: {"y": y}})
    assert torch.equal(run.values[ALICE], 4 * (x @ y))
    assert run.metered == run.plan.cost


def test_the_smaller_operand_is_encrypted_whoever_owns_it():
    def traffic(owner):
        def program(ops):
            x = ops.input("x", owner=BOB if owner == ALICE else ALICE, shape=(1, 512), bound=1.0)
            w = ops.input("w", owner=owner, shape=(512, 512), bound=1.0)
            ops.matmul(x, w)

        plan = make_plan(program, find_protocol(NO_DEALER), Roles(ALICE, BOB), frac_bits=16)
        return sum(one.payload_bytes for one in plan.cost.traffic if one.phase == "offline")

    assert traffic(ALICE) == traffic(BOB) < 8e6


def test_the_word_is_read_in_any_order_and_half_of_it_is_refused():
    for name in (
        NO_DEALER,
        "sealed; activations: garbled; linear: he",
        "sealed; linear: he; activations: garbled; norms: garbled; softmax: garbled",
    ):
        assert find_protocol(name).name == NO_DEALER
    for name in (
        "sealed; linear: he",
        "sealed; activations: garbled",
        "sealed; linear: he; activations: garbled; norms: permuted3",
        "permuted3; linear: he; activations: garbled",
        "sealed; linear: sealed; activations: garbled",
    ):
        with pytest.raises(ConfigError, match="without a dealer all functions are garbled"):
            find_protocol(name)


def test_a_dealer_too_many_or_too_few_is_refused():
    def program(ops):
        ops.input("x", owner=ALICE, shape=(1,), bound=1.0)

    for name, roles in ((NO_DEALER, Roles(ALICE, BOB, CAROL)), ("sealed", Roles(ALICE, BOB))):
        with pytest.raises(ConfigError, match=r"wants (no|a) dealer"):
            make_plan(program, find_protocol(name), roles, frac_bits=16)


def test_tensors_that_grow_are_refused_when_planned():
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(2, 3), bound=1.0)
        y = ops.input("y", owner=BOB, shape=(3, 2), bound=1.0)
        (grown,) = ops.grow({"past": x}, length=2, dim=0)
        ops.multiply(MatMul(), grown, y)

    with pytest.raises(InputError, match="without a dealer"):
        make_plan(program, find_protocol(NO_DEALER), Roles(ALICE, BOB), frac_bits=16)


def test_a_malformed_message_is_refused_with_the_name_of_its_sender(monkeypatch):
    from tacit.crypto.joint import lattice

    honest = lattice.LatticeKey.encrypt

    def broken(self, words, randomness):
        fresh, seed = honest(self, words, randomness)
        fresh[0, 0, 0] = 0xFFFFFFFF
        return fresh, seed

    monkeypatch.setattr(lattice.LatticeKey, "encrypt", broken)
    with pytest.raises(FrameError, match="malformed") as caught:
        run_all({"matmul": OPERATIONS["matmul"][0]}, torch.ones(3, 4), torch.ones(3, 4))
    assert caught.value.party in (ALICE, BOB)
