"""Every protocol gives the same on every device: under sealed, bit for bit, message for message."""

from itertools import combinations

import pytest
import torch

from support.mpc import ALICE, BOB, CAROL, PARTIES, simulate
from tacit.mpc import PROTOCOLS
from tacit.mpc.functions.norms import RangeWatch

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]
KEYS = {
    frozenset(pair): bytes([number] * 16) for number, pair in enumerate(combinations(PARTIES, 2))
}
FRAC_BITS = 16


def program(ops):
    x = ops.input("x", owner=ALICE, shape=(4, 6), bound=4.0)
    w = ops.input("w", owner=BOB, shape=(6, 6), bound=1.0)
    z = ops.input("z", owner=CAROL, shape=(4, 6), bound=4.0)
    image = ops.input("image", owner=ALICE, shape=(1, 1, 5, 5), bound=1.0)
    filters = ops.input("filters", owner=BOB, shape=(2, 1, 3, 3), bound=1.0)
    ops.cache_openings(w, filters)
    hidden = ops.gelu(ops.matmul(x, ops.transpose(w, 0, 1)))
    results = (
        hidden,
        ops.mul(x, z),
        ops.square(z),
        ops.relu(ops.conv2d(image, filters, stride=(1, 1), padding=(1, 1))),
        ops.is_positive(ops.sub(x, z)),
        ops.rsqrt(ops.shift(ops.square(x), 0.5)),
        ops.softmax(hidden, dim=-1),
        ops.layer_norm(z),
        ops.sigmoid(z),
        ops.max(x, dim=-1),
        ops.argmax(z, dim=-1),
        *_largest(ops, z),
        ops.attention(ops.scale(ops.mul(x, z), 4.0), torch.ones(4, 6).bool(), watch=RangeWatch()),
        ops.norm_within(ops.mul(x, z), eps=1e-5, largest_mean=256.0, centred=True),
        ops.matmul_within(ops.mul(x, z), ops.transpose(w, 0, 1), bound=96.0),
    )
    return [ops.open(one, to=(ALICE,), what="y", why="test") for one in results]


def _largest(ops, x):
    """Find the largest by tables of bits, which rows of six have no need of."""
    if not ops.has("largest"):
        return ()
    groups = ops.reshape(x, (1, 4, 6))
    return (ops.apply(ops.make("largest", 4.0, True, False), groups),)


def inputs():
    generator = torch.Generator().manual_seed(5)

    def uniform(*shape, bound=1.0):
        return (torch.rand(*shape, generator=generator, dtype=torch.float64) * 2 - 1) * bound

    return {
        ALICE: {"x": uniform(4, 6, bound=4.0), "image": uniform(1, 1, 5, 5)},
        BOB: {"w": uniform(6, 6), "filters": uniform(2, 1, 3, 3)},
        CAROL: {"z": uniform(4, 6, bound=4.0)},
    }


def run(protocol, device):
    return simulate(
        program, protocol=protocol, inputs=inputs(), frac_bits=FRAC_BITS, keys=KEYS, device=device
    )


@pytest.mark.parametrize("device", DEVICES)
def test_sealed_sends_and_gives_the_same_words_on_every_device(device):
    here, there = run("sealed", "cpu"), run("sealed", device)
    assert there.metered == there.plan.cost
    for party in PARTIES:
        assert len(here.received[party]) == len(there.received[party])
        for (tag, words), (other, same) in zip(
            here.received[party], there.received[party], strict=True
        ):
            assert tag == other
            assert torch.equal(words, same), f"{party} received another {tag}"
    for value, same in zip(here.values[ALICE], there.values[ALICE], strict=True):
        assert same.device.type == "cpu"
        assert torch.equal(value, same)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_gives_the_same_on_every_device_up_to_rounding(protocol, device):
    """Who computes in floating point may round the last place differently on another device."""
    here, there = run(protocol, "cpu"), run(protocol, device)
    assert there.metered == there.plan.cost
    for value, same in zip(here.values[ALICE], there.values[ALICE], strict=True):
        assert (value - same).abs().max() <= 16 * 2.0**-FRAC_BITS


@pytest.mark.parametrize("device", DEVICES)
def test_inputs_may_lie_on_the_device(device):
    placed = {
        owner: {name: value.to(device) for name, value in own.items()}
        for owner, own in inputs().items()
    }
    there = simulate(program, inputs=placed, frac_bits=FRAC_BITS, keys=KEYS, device=device)
    for value, same in zip(run("sealed", "cpu").values[ALICE], there.values[ALICE], strict=True):
        assert torch.equal(value, same)
