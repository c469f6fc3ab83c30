"""What holds for the permuted protocols alone: one round trip, exactness, flips and dummies."""

import pytest
import torch
from torch.nn import functional

from support.mpc import ALICE, BOB, CAROL, ROLES, prepared, run_on, simulate
from tacit.errors import ConfigError, InputError
from tacit.mpc import PROTOCOLS, find_protocol, make_plan
from tacit.mpc.functions.curves import ELEMENTWISE
from tacit.mpc.permuted.hiding import SYMMETRIES

ULP = 2.0**-16
PERMUTED = ("permuted2", "permuted3")
HIDINGS = tuple(
    f"{protocol} {options}"
    for protocol in PERMUTED
    for options in ("flips", "dummies=5 reach=3", "flips dummies=40")
)


def opened(private, shape, bound=16.0):
    def program(ops):
        x = ops.input("x", owner=ALICE, shape=shape, bound=bound)
        return ops.open(private(ops, x), to=(ALICE,), what="y", why="test")

    return program


def unopened(private, shape=(6, 4), bound=16.0):
    return lambda ops: private(ops, ops.input("x", owner=ALICE, shape=shape, bound=bound))


def normal(*shape, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64) * 3


def on_grid(x):
    return (x / ULP).round() * ULP


ROWS = {
    "softmax": (lambda ops, x: ops.softmax(x), lambda x: x.softmax(-1)),
    "softmax along a middle dimension": (
        lambda ops, x: ops.softmax(x, dim=1),
        lambda x: x.softmax(1),
    ),
    "log softmax": (lambda ops, x: ops.log_softmax(x), lambda x: x.log_softmax(-1)),
    "layer norm": (
        lambda ops, x: ops.layer_norm(x, eps=1e-3),
        lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-3),
    ),
    "rms norm": (
        lambda ops, x: ops.rms_norm(x, eps=1e-3),
        lambda x: x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt(),
    ),
    "maximum": (lambda ops, x: ops.max(x, dim=-1), lambda x: x.amax(-1)),
    "maximum along the first dimension": (lambda ops, x: ops.max(x, dim=0), lambda x: x.amax(0)),
    "sort": (lambda ops, x: ops.sort(x)[0], lambda x: x.sort(-1, descending=True).values),
    "sort along a middle dimension": (
        lambda ops, x: ops.rowwise("sort", x, dim=1),
        lambda x: x.sort(1, descending=True).values,
    ),
    "place of the largest": (
        lambda ops, x: ops.rowwise("argmax", x, dim=-1),
        lambda x: functional.one_hot(x.argmax(-1), x.shape[-1]).double(),
    ),
}


@pytest.mark.parametrize("protocol", [*PERMUTED, *HIDINGS])
@pytest.mark.parametrize("name", ROWS)
def test_a_function_of_rows_is_exact_up_to_rounding(protocol, name):
    private, plain = ROWS[name]
    x = on_grid(normal(4, 5, 9))
    run = simulate(opened(private, (4, 5, 9)), protocol=protocol, inputs={ALICE: {"x": x}})
    assert (run.values[ALICE] - plain(x)).abs().max() <= 0.51 * ULP
    assert run.metered == run.plan.cost


@pytest.mark.parametrize("protocol", [*PERMUTED, *HIDINGS])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_function_of_values_is_exact_up_to_rounding(protocol, name):
    x = torch.cat((on_grid(normal(400)), torch.tensor([0.0, ULP, -ULP, 16.0, -16.0])))
    x = x.clamp(-16, 16)

    def private(ops, x):
        return ops.elementwise(name, x)

    run = simulate(opened(private, (405,)), protocol=protocol, inputs={ALICE: {"x": x}})
    assert (run.values[ALICE] - ELEMENTWISE[name].plain(x)).abs().max() <= 0.51 * ULP
    assert run.metered == run.plan.cost


@pytest.mark.parametrize("protocol", [*PERMUTED, *HIDINGS])
@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "abs", "tanh", "step"])
def test_a_function_of_a_product_needs_no_truncation(protocol, name):
    x = on_grid(normal(300)).clamp(-16, 16)

    def private(ops, x):
        return ops.elementwise(name, ops.mul(x, x) if name == "tanh" else ops.mul(x, ops.relu(x)))

    run = simulate(opened(private, (300,)), protocol=protocol, inputs={ALICE: {"x": x}})
    product = x * x if name == "tanh" else x * x.relu()
    assert (run.values[ALICE] - ELEMENTWISE[name].plain(product)).abs().max() <= 1.01 * ULP


ONE_TRIP = {
    **{name: row[0] for name, row in ROWS.items() if "dimension" not in name},
    **{
        name: lambda ops, x, name=name: getattr(ops, name)(x)
        for name in ("relu", "gelu", "exp", "log", "reciprocal", "rsqrt", "sqrt", "sigmoid")
    },
    "sign": lambda ops, x: ops.is_positive(x),
}


@pytest.mark.parametrize("name", ONE_TRIP)
def test_a_function_takes_one_round_trip_through_the_helper(name):
    run = simulate(
        unopened(ONE_TRIP[name]), protocol="permuted3", inputs={ALICE: {"x": normal(6, 4)}}
    )
    traffic = {(t.sender, t.receiver): t.messages for t in run.metered.traffic}
    assert traffic == {(ALICE, CAROL): 1, (BOB, CAROL): 1, (CAROL, BOB): 1}
    assert run.metered.online_rounds == 2


@pytest.mark.parametrize("name", ONE_TRIP)
def test_a_function_takes_one_round_trip_between_two_parties(name):
    run = simulate(
        unopened(ONE_TRIP[name]), protocol="permuted2", inputs={ALICE: {"x": normal(6, 4)}}
    )
    # P1's share of an input of P0 is drawn: under its mask it is handed over before any query.
    assert messages(run, "online") == {(ALICE, BOB): 1, (BOB, ALICE): 1}
    assert messages(run, "offline") == {(CAROL, BOB): 1, (BOB, ALICE): 1}
    assert run.metered.online_rounds == 2
    assert run.metered == run.plan.cost


def messages(run, phase):
    return {(t.sender, t.receiver): t.messages for t in run.metered.traffic if t.phase == phase}


def test_of_a_value_that_is_new_the_second_party_hands_its_share_over_online():
    """P0's message must depend on P1's share, or P1 could try shares until it knows the order."""

    def private(ops, x):
        return ops.gelu(ops.mul(x, x))

    run = simulate(unopened(private), protocol="permuted2", inputs={ALICE: {"x": normal(6, 4)}})
    # One way for the factor, which is P0's, and then three for the function.
    assert messages(run, "online") == {(ALICE, BOB): 2, (BOB, ALICE): 2}
    assert run.metered == run.plan.cost


def test_an_input_is_handed_over_for_every_function_of_it_and_between_other_steps():
    x = on_grid(normal(6, 4))

    def private(ops, x):
        y = ops.mul(ops.tanh(x), ops.input("y", owner=BOB, shape=(6, 4), bound=16.0))
        return ops.add(ops.relu(x), ops.softmax(ops.add(y, ops.gelu(x))))

    inputs = {ALICE: {"x": x}, BOB: {"y": x}}
    run = simulate(opened(private, (6, 4)), protocol="permuted2", inputs=inputs)
    wanted = x.relu() + (x.tanh() * x + functional.gelu(x)).softmax(-1)
    assert (run.values[ALICE] - wanted).abs().max() < 8 * ULP
    assert run.metered == run.plan.cost
    assert [step for step, _ in run.plan.handed] == [0, 0, 0]


def test_functions_that_follow_each_other_take_one_round_trip_each():
    def chain(ops, x):
        for _ in range(4):
            x = ops.shift(ops.tanh(ops.scale(x, 2)), 0.25)

    inputs = {ALICE: {"x": normal(6, 4)}}
    assert simulate(unopened(chain), protocol="permuted2", inputs=inputs).metered.online_rounds == 9
    assert simulate(unopened(chain), protocol="permuted3", inputs=inputs).metered.online_rounds == 8


@pytest.mark.parametrize(
    ("bound", "size"), [(1.0, 4), (2.0**14, 4), (2.0**15, 5), (2.0**23, 6), (2.0**40, 8)]
)
def test_values_travel_in_as_many_bytes_as_their_bound_needs(bound, size):
    x = torch.tensor([bound, -bound, 0.0, ULP, -ULP, bound / 3], dtype=torch.float64)
    for protocol in PERMUTED:
        program = opened(lambda ops, x: ops.relu(x), (6,), bound)
        run = simulate(program, protocol=protocol, inputs={ALICE: {"x": x}})
        assert torch.equal(run.values[ALICE], on_grid(x).relu())
        traffic = simulate(
            unopened(lambda ops, x: ops.relu(x), (6,), bound),
            protocol=protocol,
            inputs={ALICE: {"x": x}},
        ).metered.traffic
        seen, before = (
            {(t.sender, t.receiver): t.payload_bytes for t in traffic if t.phase == phase}
            for phase in ("online", "offline")
        )
        if protocol == "permuted3":
            assert seen == {(ALICE, CAROL): 6 * size, (BOB, CAROL): 6 * size, (CAROL, BOB): 48}
        else:
            assert seen == {(ALICE, BOB): 6 * size, (BOB, ALICE): 48}
            assert before == {(BOB, ALICE): 6 * size, (CAROL, BOB): 96}


def test_of_several_largest_values_exactly_one_is_marked():
    x = torch.tensor([[1.0, 3.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
    program = opened(lambda ops, x: ops.rowwise("argmax", x, dim=-1), (2, 4))
    for protocol in PERMUTED:
        marks = simulate(program, protocol=protocol, inputs={ALICE: {"x": x}}).values[ALICE]
        assert marks.sum(-1).tolist() == [1.0, 1.0]
        assert bool((x[marks == 1] == x.amax(-1)).all())


@pytest.mark.parametrize("protocol", PERMUTED)
def test_a_row_that_does_not_exist_or_is_empty_is_refused(protocol):
    with pytest.raises(InputError, match="no dimension 3"):
        simulate(unopened(lambda ops, x: ops.softmax(x, dim=3)), protocol=protocol)
    with pytest.raises(InputError, match="holds no values"):
        simulate(unopened(lambda ops, x: ops.softmax(x), shape=(3, 0)), protocol=protocol)


def test_the_ledger_of_permuted2_names_the_second_party_as_the_one_who_sees():
    run = simulate(
        unopened(lambda ops, x: ops.gelu(x)),
        protocol="permuted2",
        inputs={ALICE: {"x": normal(6, 4)}},
    )
    (leak,) = run.leaks[CAROL]
    assert (leak.to, leak.kind, leak.elements) == (BOB, "protocol", 24)
    assert leak.what == "the inputs of gelu, in random order"
    claims = PROTOCOLS["permuted2"].claims
    assert [claim.guarantee for claim in claims if "P1" in claim.subject] == ["no guarantee"]
    assert not PROTOCOLS["permuted2"].helper_is_online


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_the_ledger_says_where_signs_are_flipped(name):
    run = simulate(
        unopened(lambda ops, x: ops.elementwise(name, x)),
        protocol="permuted3 flips",
        inputs={ALICE: {"x": normal(6, 4)}},
    )
    (leak,) = run.leaks[CAROL]
    assert ("random sign" in leak.what) == (name in SYMMETRIES)


def test_the_ledger_counts_the_dummies():
    program = unopened(lambda ops, x: (ops.tanh(x), ops.softmax(x)))
    inputs = {ALICE: {"x": normal(6, 4)}}
    run = simulate(program, protocol="permuted3 dummies=7 reach=2.5", inputs=inputs)
    whats = [leak.what for leak in run.leaks[CAROL]]
    assert any("among 7 dummies uniform within ±2.5" in what for what in whats)
    assert any("among 7 dummy rows" in what for what in whats)


def test_flips_and_dummies_are_part_of_the_name_and_of_the_claims():
    protocol = find_protocol("permuted3 dummies=8  flips reach=2")
    assert protocol.name == "permuted3 flips dummies=8 reach=2"
    assert find_protocol(protocol.name).name == protocol.name
    assumptions = " ".join(protocol.claims[1].assumptions)
    assert "dummies" in assumptions
    assert "signs" in assumptions
    assert protocol.claims[1].guarantee == "no guarantee"


@pytest.mark.parametrize(
    "name",
    [
        "permuted3 flip",
        "permuted3 flips=1",
        "permuted3 flips flips",
        "permuted3 dummies=many",
        "permuted3 dummies=-1",
        "permuted3 dummies=5 reach=0",
        "permuted3 dummies=5 reach=nan",
        "permuted2 flip",
        "sealed dummies=4",
        "permuted4",
        "",
    ],
)
def test_options_that_do_not_exist_are_refused(name):
    with pytest.raises(ConfigError):
        find_protocol(name)


def test_permuted2_runs_on_prepared_material_with_no_dealer_in_the_session(tmp_path):
    """Helper offline only: two parties and a file each."""

    def private(ops, x):
        return ops.softmax(ops.add(ops.gelu(ops.mul(x, x)), ops.relu(x)))

    program = opened(private, (4, 5))
    plan = make_plan(program, find_protocol("permuted2"), ROLES, frac_bits=16)
    x = on_grid(normal(4, 5))
    got = run_on(plan, program, prepared(plan, tmp_path), {"x": x})[ALICE]
    assert (got - (functional.gelu(x * x) + x.relu()).softmax(-1)).abs().max() < 2 * ULP
