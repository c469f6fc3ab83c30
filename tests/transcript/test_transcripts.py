"""What a party receives carries no trace of a secret.

The definition, made into a test: let one party be corrupt. Everything that it knows is fixed — all
generators it shares give zeros, all inputs are constants, the same for every element. What is
left is the randomness that it does not know, and that alone must make every word it receives
uniform, and every pair of words too. A mask that is missing, known or used twice fails here and
in no other test.
"""

from dataclasses import dataclass, replace

import pytest
import torch

from support.crypto import complaints, related
from support.mpc import ALICE, BOB, CAROL, MEETING, PARTIES, ROLES, Wiretap, simulate
from tacit import ring
from tacit.errors import TacitError
from tacit.mpc import PROTOCOLS, Share, compute, find_protocol, make_plan, registry, serve
from tacit.mpc.contract import Declaration
from tacit.mpc.functions.attention import saturated
from tacit.mpc.functions.norms import RangeWatch, _excess
from tacit.mpc.functions.poles import FEW
from tacit.mpc.material.randomness import unpack
from tacit.party import run_threads
from tacit.party.cost import CostedMessage
from tacit.result import Leak

SAMPLES = 4096  # a multiple of 64: bit planes are full words


def elementwise(op):
    """Many independent uses of one kernel on the same constant secrets; nothing is opened."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(SAMPLES, 1, 1), bound=64.0)
        y = ops.input("y", owner=BOB, shape=(SAMPLES, 1, 1), bound=64.0)
        z = ops.input("z", owner=CAROL, shape=(SAMPLES, 1, 1), bound=64.0)
        op(ops, x, y, z)

    return program


def secrets(x=3.25, y=-7.5, z=1.0):
    def full(value):
        return torch.full((SAMPLES, 1, 1), value, dtype=torch.float64)

    return {ALICE: {"x": full(x)}, BOB: {"y": full(y)}, CAROL: {"z": full(z)}}


def rescaled_square(ops, product):
    """Multiply an opening with itself, and then with something else."""
    ops.mul_rescaling(product, product, bound=2.0**24)
    return ops.mul_rescaling(product, ops.scale(product, 2.0), bound=2.0**24)


def watched_length(ops, row):
    """Open a row twice in one message: with a stated bound, and with few bits and its own."""
    if ops.is_checked:  # whose openings do not rescale
        return row
    stated = ops.restate(row, bound=32.0)
    return ops.add(
        _excess(ops, row, stated, 2.0**10, 16),
        ops.reshape(ops.mul_rescaling(stated, stated, frac_bits=(16, 16)), (SAMPLES,)),
    )


def posted(ops, product, square):
    """Send openings before any is waited for, and open one once more, as it was rescaled."""
    if ops.is_checked:  # whose openings do not rescale
        return product
    wait, applied = ops.post(product, is_exact=True), ops.begin_rescaling("gelu", product)
    ops.rescaled(square)
    wait()
    applied()
    return ops.mul(ops.rescaled(product), ops.rescaled(square))


def weighted(ops, y, z):
    """Multiply twice with a weight of P0, who enters the same as ``x``."""
    if ops.is_checked:  # which has none
        return
    w = ops.weight("x", owner=ALICE, shape=(SAMPLES, 1, 1), bound=64.0)
    ops.mul(y, w)
    ops.mul(ops.mul(y, z), w)


def function_of_many(ops, name, x):
    """Apply a function as it is cut for so many numbers that no test has them."""
    if not ops.has("elementwise_many"):
        return ops.elementwise(name, x)
    return ops.apply(ops.make("elementwise_many", name, ops.frac_bits, ops.bound(x)), x)


def largest_of_three(ops, *numbers, is_direct):
    """Find the largest of three, what belongs to it, and its place."""
    rows = ops.concatenate([ops.reshape(one, (SAMPLES, 1)) for one in numbers], dim=1)
    if not ops.has("largest"):
        return ops.max(rows, dim=1)
    both = ops.concatenate([ops.reshape(rows, (1, SAMPLES, 3))] * 2, dim=0)
    return ops.apply(ops.make("largest", 64.0, True, is_direct), both)


KERNELS = {
    "input": lambda ops, x, y, z: None,
    "mul": lambda ops, x, y, z: ops.mul(x, y),
    "two products of one operand": lambda ops, x, y, z: (ops.mul(x, y), ops.mul(x, y)),
    "matmul": lambda ops, x, y, z: ops.matmul(x, y),
    "products with cached weights": lambda ops, x, y, z: (
        ops.cache_openings(y, z),
        ops.mul(x, y),
        ops.mul(x, z),
        ops.mul(ops.mul(x, z), z),
    ),
    "products with a weight": lambda ops, x, y, z: weighted(ops, y, z),
    "truncation": lambda ops, x, y, z: ops.mul(ops.mul(x, y), z),
    "truncation of an input": lambda ops, x, y, z: ops.normalise_scale(ops.scale(x, 0.3)),
    "is_positive": lambda ops, x, y, z: ops.is_positive(x),
    "is_positive of a product": lambda ops, x, y, z: ops.is_positive(ops.mul(x, y)),
    "sigmoid": lambda ops, x, y, z: ops.sigmoid(ops.mul(x, y)),
    "square": lambda ops, x, y, z: ops.square(x),
    "relu": lambda ops, x, y, z: ops.relu(x),
    "relu of a product": lambda ops, x, y, z: ops.relu(ops.mul(x, y)),
    "gelu of a product": lambda ops, x, y, z: ops.gelu(ops.mul(x, y)),
    "reciprocal": lambda ops, x, y, z: ops.reciprocal(z),
    "a product that rescales": lambda ops, x, y, z: ops.mul_rescaling(
        ops.mul(x, y), ops.mul(y, z), bound=2.0**24
    ),
    "a square that rescales": lambda ops, x, y, z: rescaled_square(ops, ops.mul(x, y)),
    "a cut product": lambda ops, x, y, z: ops.normalise_scale(
        ops.matmul_within(ops.mul(x, y), z, bound=2.0**12)
    ),
    "openings that are posted": lambda ops, x, y, z: posted(ops, ops.mul(x, y), ops.mul(y, z)),
    "gelu that rescales": lambda ops, x, y, z: ops.elementwise_rescaling("gelu", ops.mul(x, y)),
    "exp of many": lambda ops, x, y, z: function_of_many(ops, "exp", x),
    "gelu of many": lambda ops, x, y, z: function_of_many(ops, "gelu", x),
    "a watched row": lambda ops, x, y, z: watched_length(
        ops, ops.reshape(ops.mul(x, y), (SAMPLES, 1))
    ),
    "largest": lambda ops, x, y, z: largest_of_three(ops, x, y, z, is_direct=True),
    "largest by bits": lambda ops, x, y, z: largest_of_three(ops, x, y, z, is_direct=False),
    "saturation": lambda ops, x, y, z: saturated(ops, ops.mul(x, y)),
    "attention": lambda ops, x, y, z: ops.attention(
        ops.scale(ops.mul(x, y), 2.0**-12), torch.ones(1, 1).bool(), watch=RangeWatch()
    ),
}


def pieces(run, corrupt):
    """Take apart what a party received: (name, samples × parts), also bit planes put together."""
    for tag, words in run.received[corrupt]:
        if not tag.startswith("deal/"):
            yield tag, columns(words)
            continue
        step = int(tag.split()[0].split(".")[-1])
        shapes = [s for need in run.plan.steps[step].needs for s in need.correction_shapes()]
        for number, part in enumerate(unpack(words, tuple(shapes))):
            yield f"{tag} part {number}", columns(sampled(part))
            if part.shape == (64, SAMPLES // 64):
                yield f"{tag} part {number} as words", columns(ring.from_planes(part, SAMPLES))


def sampled(part):
    """Thin out large parts, such as a tag for every bit, evenly over all their rows."""
    if part.numel() <= 16 * SAMPLES:
        return part
    return part.reshape(-1)[:: part.numel() // (8 * SAMPLES) | 1]


def columns(words):
    """Lay a message out as samples × parts; words of packed bits are samples of their own."""
    if words.dtype == torch.uint8:
        return words if words.dim() > 1 else words.reshape(-1, 1)
    if words.numel() == SAMPLES or (words.numel() % SAMPLES == 0 and words.dim() == 1):
        return words.reshape(-1, SAMPLES).T
    return words.reshape(-1, 1)


def assert_carries_nothing(run, corrupt):
    """Check every message and every pair of messages that the corrupt party received."""
    messages = list(pieces(run, corrupt))
    for tag, words in messages:
        assert complaints(words) == [], f"{corrupt} received {tag}"
    assert related(single(messages)) == []
    for tag, words in opened(run, corrupt):
        assert complaints(words) == [], f"{corrupt} can work out {tag}"


def opened(run, corrupt):
    """Put together what a party sent and received in one exchange: it was opened to both."""
    sent = {tag.split()[0]: words for tag, words in run.sent[corrupt]}
    for tag, theirs in run.received[corrupt]:
        mine = sent.get(tag.split()[0])
        if mine is not None and mine.shape == theirs.shape:
            yield f"{tag} + own", columns(theirs + mine)
            yield f"{tag} ^ own", columns(theirs ^ mine)


def single(messages):
    """Take messages apart into columns of one word, or one packed word, per sample."""
    return [
        (f"{tag}[{part}]", column)
        for tag, words in messages
        for part, column in enumerate(words.T)
        if words.shape[1] <= 3
    ]


# All whose computing parties see nothing; what others see is checked in `test_permuted`.
BLIND = [name for name, one in PROTOCOLS.items() if one.shows_to <= {"dealer"}]
CASES = [
    # What attention is made of is here by itself; with tags it takes long.
    pytest.param(
        protocol,
        kernel,
        marks=[pytest.mark.slow] * ((protocol, kernel) == ("checked", "attention")),
    )
    for protocol in BLIND
    for kernel in KERNELS
]


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
@pytest.mark.parametrize(("protocol", "kernel"), CASES)
def test_a_computing_party_receives_uniform_words(protocol, kernel, corrupt):
    program = elementwise(KERNELS[kernel])
    run = simulate(program, protocol=protocol, inputs=secrets(), corrupt=corrupt)
    assert_carries_nothing(run, corrupt)
    if "dealer" not in find_protocol(protocol).shows_to:
        assert run.received[CAROL] == []


@pytest.mark.parametrize("corrupt", [ALICE, BOB])
@pytest.mark.parametrize(("function", "rounds"), [("rsqrt", 6), ("gelu", 4)])
def test_a_few_numbers_compared_with_many_thresholds_are_hidden_too(function, rounds, corrupt):
    """They share a mask and a message, and some leave out blocks."""
    few = FEW

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(few,), bound=64.0)
        y = ops.input("y", owner=BOB, shape=(few,), bound=64.0)
        getattr(ops, function)(x)
        getattr(ops, function)(y)

    inputs = {
        ALICE: {"x": torch.full((few,), 3.25, dtype=torch.float64)},
        BOB: {"y": torch.full((few,), 40.0, dtype=torch.float64)},
    }
    run = simulate(program, inputs=inputs, corrupt=corrupt)
    assert run.plan.cost.online_rounds == rounds  # twice: opening, perhaps a tree, selection
    assert_carries_nothing(run, corrupt)


@dataclass(frozen=True)
class Shows:
    """A kernel that shows P1 what it computes on; its declaration says so, or not."""

    says_so: bool

    def declare(self, roles, *operands):
        (x,) = operands
        leak = Leak(to=roles.second, what="x", why="test", kind="protocol", elements=x.elements)
        message = CostedMessage(roles.first, roles.second, 8 * x.elements)
        return Declaration(out=x, rounds=((message,),), leaks=(leak,) * self.says_so)

    def run(self, channel, material, *operands):
        (x,) = operands
        if channel.is_first:
            channel.send(channel.other, x.words.contiguous())
            return Share(torch.zeros_like(x.words), x.spec)
        return Share(x.words + channel.recv(channel.other, x.spec.shape), x.spec)


def relu_that_shows(monkeypatch, **declared):
    """Make a protocol whose relu shows its input, and a program that uses it."""
    kernels = {**PROTOCOLS["sealed"].kernels, "elementwise": lambda *_: Shows(**declared)}
    shown = replace(PROTOCOLS["sealed"], name="shown", kernels=kernels)
    monkeypatch.setattr(registry, "PROTOCOLS", {**PROTOCOLS, "shown": shown})
    return elementwise(lambda ops, x, y, z: ops.relu(x))


def test_a_kernel_that_shows_what_its_protocol_does_not_declare_is_refused(monkeypatch):
    program = relu_that_shows(monkeypatch, says_so=True)
    with pytest.raises(TacitError, match="Shows shows x to 'bob'"):
        simulate(program, protocol="shown", inputs=secrets())


def test_a_kernel_that_shows_something_and_says_nothing_is_noticed_by_these_checks(monkeypatch):
    program = relu_that_shows(monkeypatch, says_so=False)
    run = simulate(program, protocol="shown", inputs=secrets(), corrupt=BOB)
    with pytest.raises(AssertionError, match="bob"):
        assert_carries_nothing(run, BOB)


@pytest.mark.parametrize("name", [name for name, one in PROTOCOLS.items() if one.shows_to])
def test_a_protocol_under_another_name_declares_what_it_shows_or_is_refused(monkeypatch, name):
    original, program = PROTOCOLS[name], elementwise(KERNELS["relu"])
    copies = {
        "copy": replace(original, name="copy"),
        "silent": replace(original, name="silent", shows_to=frozenset()),
    }
    monkeypatch.setattr(registry, "PROTOCOLS", {**PROTOCOLS, **copies})
    assert find_protocol("sealed; activations: copy").shows_to == original.shows_to
    assert make_plan(program, copies["copy"], ROLES, frac_bits=16).leaks
    for silent in ("silent", "sealed; activations: silent"):
        with pytest.raises(TacitError, match="declare it in shows_to"):
            make_plan(program, find_protocol(silent), ROLES, frac_bits=16)


def test_a_receiver_learns_the_value_and_nothing_else_from_an_opening():
    """The share that comes in is the value minus the share the receiver has: uniform by itself."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(SAMPLES, 1), bound=64.0)
        y = ops.input("y", owner=ALICE, shape=(SAMPLES, 1), bound=64.0)
        return ops.open(ops.mul(x, y), to=(BOB,), what="product", why="test")

    full = torch.full((SAMPLES, 1), 2.5, dtype=torch.float64)
    run = simulate(program, inputs={ALICE: {"x": full, "y": full}})
    for tag, words in run.received[BOB]:
        assert complaints(columns(words)) == [], tag


def test_a_receiver_outside_learns_the_value_and_nothing_else_even_if_it_is_the_dealer():
    """It knows every mask of a product, so the shares of one may not reach it as they are."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(SAMPLES, 1), bound=64.0)
        y = ops.input("y", owner=BOB, shape=(SAMPLES, 1), bound=64.0)
        product = ops.mul(x, y)
        ops.open(product, to=(CAROL,), what="product", why="test")
        ops.open(ops.is_positive(product), to=(CAROL,), what="sign", why="test")

    full = torch.full((SAMPLES, 1), 2.5, dtype=torch.float64)
    run = simulate(program, inputs={ALICE: {"x": full}, BOB: {"y": full}}, corrupt=CAROL)
    assert len(run.received[CAROL]) == 4
    for tag, words in run.received[CAROL]:
        assert complaints(columns(words)) == [], tag


def test_parties_receive_the_same_number_of_bytes_whatever_the_secret():
    shapes = []
    for values in (secrets(0.0, 0.0, 0.0), secrets(63.0, -63.0, 1.0)):
        run = simulate(elementwise(KERNELS["is_positive of a product"]), inputs=values)
        shapes.append(
            {party: [(tag, w.shape) for tag, w in run.received[party]] for party in PARTIES}
        )
    assert shapes[0] == shapes[1]


def test_two_runs_in_one_session_share_no_mask():
    seen = {name: [] for name in (ALICE, BOB)}

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(50,), bound=64.0)
        y = ops.input("y", owner=BOB, shape=(50,), bound=64.0)
        ops.is_positive(ops.mul(x, y))

    plan = make_plan(program, PROTOCOLS["sealed"], ROLES, frac_bits=16)
    inputs = {name: {key: torch.ones(50)} for name, key in ((ALICE, "x"), (BOB, "y"))}

    def party(session):
        for _ in range(2):
            if session.me in ROLES.computing:
                compute(session, plan, program, inputs=inputs[session.me])
            else:
                serve(session, plan, inputs={})

    def tap(me, link):
        return Wiretap(link, seen[me]) if me in seen else link

    run_threads(dict.fromkeys(PARTIES, party), MEETING, wrap=tap)
    for notes in seen.values():
        words = torch.cat([w.flatten() for _, w in notes if w.dtype == torch.int64])
        # A thousand uniform words repeat with chance below 1e-13.
        assert len(words) > 100
        assert len(words.unique()) == len(words)
