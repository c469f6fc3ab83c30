"""Delete each mask in the code, one at a time: the transcript tests must notice every one.

The places are found by reading the source, so a kernel that is written tomorrow is covered
tomorrow. Where the transcript tests pass although a mask is gone, this test fails.
"""

import ast
import importlib
import inspect
import sys
import types
from pathlib import Path

import pytest
import torch

import tacit.mpc
from support import cheating
from support.crypto import complaints
from support.mpc import ALICE, BOB, simulate
from tacit.mpc.functions.norms import RangeWatch
from tacit.mpc.protocols.checked import proofs
from transcript import test_cheating, test_permuted, test_transcripts, test_without_dealer

DRAWS = {"words", "bits", "permutation"}
ROOM = Path(inspect.getfile(tacit.mpc)).parent
HIDES_NOTHING = {"pace.py"}  # draws words to measure how fast the machine is


def draw_sites():
    """Find every call that draws randomness in the room `mpc`: (module, function path, ordinal)."""
    for path in sorted(ROOM.rglob("*.py")):
        if path.name in HIDES_NOTHING:
            continue
        relative = path.relative_to(ROOM.parent.parent).with_suffix("")
        module = ".".join(relative.parts)
        calls = sorted(
            (node.lineno, node.col_offset)
            for node in ast.walk(ast.parse(path.read_text()))
            if _is_draw(node)
        )
        for line, column in calls:
            yield pytest.param(module, line, column, id=f"{module}:{line}:{column}")


def _is_draw(node):
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in DRAWS
        and bool(node.args)  # a draw says how much it wants
    )


class RemoveMask(ast.NodeTransformer):
    """Make one draw return what a missing mask would be: zeros, or the identity order."""

    def __init__(self, line, column):
        self.place = (line, column)
        self.hits = 0

    def visit_Call(self, node):
        self.generic_visit(node)
        if not _is_draw(node) or (node.lineno, node.col_offset) != self.place:
            return node
        self.hits += 1
        # The generator still advances, so that nothing else changes.
        replaced = "_no_order" if node.func.attr == "permutation" else "_no_mask"
        wrapped = ast.Call(func=ast.Name(replaced, ast.Load()), args=[node], keywords=[])
        return ast.copy_location(wrapped, node)


def mutated_module(name, line, column):
    module = importlib.import_module(name)
    tree = ast.parse(Path(module.__file__).read_text())
    transformer = RemoveMask(line, column)
    tree = ast.fix_missing_locations(transformer.visit(tree))
    assert transformer.hits == 1
    copy = types.ModuleType(name)
    copy.__file__ = module.__file__
    copy._no_mask = lambda words: words.zero_()
    copy._no_order = lambda order: order.sort().values
    sys.modules[name], saved = copy, sys.modules[name]  # dataclass looks its module up
    try:
        exec(compile(tree, module.__file__, "exec"), copy.__dict__)  # noqa: S102
    finally:
        sys.modules[name] = saved
    return module, copy


def install(monkeypatch, module, copy):
    """Put the mutated functions into the real classes and module, which others have imported."""
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__ or not hasattr(copy, name):
            continue
        if inspect.isclass(thing):
            for key, method in vars(getattr(copy, name)).items():
                if inspect.isfunction(method):
                    monkeypatch.setattr(thing, key, method)
        elif inspect.isfunction(thing):
            monkeypatch.setattr(module, name, getattr(copy, name))


def everything_is_clean(*protocols):
    """Run the transcript checks on one program that uses every kernel of protocols."""

    def everything(ops, x, y, z):
        ops.is_positive(x)
        ops.is_positive(ops.mul(ops.mul(x, y), z))
        ops.relu(ops.mul(x, y))
        ops.gelu(x)
        ops.square(x)
        test_transcripts.weighted(ops, y, z)
        ops.mul_rescaling(ops.mul(x, y), ops.mul(y, z), bound=2.0**24)
        if not ops.is_checked:  # made of the others, and long with tags
            for is_direct in (True, False):
                test_transcripts.largest_of_three(ops, x, y, z, is_direct=is_direct)
            scores = ops.scale(ops.mul(x, y), 2.0**-12)
            ops.attention(scores, torch.ones(1, 1).bool(), watch=RangeWatch())
            ops.elementwise_rescaling("gelu", ops.mul(x, y))
        # A share that does not change: a bit of it that nothing masks stands out.
        ops.normalise_scale(ops.scale(x, 0.3))
        ops.normalise_scale(ops.scale(y, 0.3))

    program = test_transcripts.elementwise(everything)
    for protocol in protocols:
        for corrupt in (ALICE, BOB):
            run = simulate(
                program, protocol=protocol, inputs=test_transcripts.secrets(), corrupt=corrupt
            )
            test_transcripts.assert_carries_nothing(run, corrupt)


def transcripts_are_clean():
    """Run the transcript checks of the protocols whose parties follow them."""
    everything_is_clean(*(one for one in test_transcripts.BLIND if one != "checked"))
    test_transcripts.test_a_receiver_outside_learns_the_value_and_nothing_else_even_if_it_is_the_dealer()


def tags_are_clean():
    """Run the transcript checks of `checked`, with an opening, and see that a lie is caught."""
    lies_are_caught()
    openings_are_clean()
    for kernel in ("truncation of an input", "mul"):  # short, and most of what is dealt
        for corrupt in (ALICE, BOB):
            case = test_transcripts.test_a_computing_party_receives_uniform_words
            case("checked", kernel, corrupt)
    everything_is_clean("checked")


def openings_are_clean():
    """What is proved about many sums carries nothing, whoever is corrupt."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(4,), bound=64.0)
        for _ in range(60):
            ops.open(x, to=(ALICE,), what="x", why="test")

    inputs = {ALICE: {"x": torch.ones(4, dtype=torch.float64)}}
    for corrupt in (ALICE, BOB):
        run = simulate(program, protocol="checked", inputs=inputs, corrupt=corrupt)
        answers = [w[: proofs.SUMS] for tag, w in run.received[corrupt] if len(w) == 50]
        assert complaints(torch.cat(answers)) == []


def lies_are_caught():
    """Both kinds of tags: a word and a bit are changed, by either party."""
    for liar in (ALICE, BOB):
        for step in ("run/0.7.0", "run/0.8.1"):
            other = BOB if liar == ALICE else ALICE
            lie = cheating.Liar(liar, step, other, test_cheating.add(0), steady=True)
            assert other not in cheating.run(lie).values
    large_lies_are_caught()


def large_lies_are_caught():
    """Large products and long messages are checked by projections: these must see a lie."""
    for shape, verb in (((64, 64), "matmul"), ((9000,), "mul")):

        def work(ops, shape=shape, verb=verb):
            x = ops.input("x", owner=ALICE, shape=shape, bound=1.0)
            w = ops.input("w", owner=BOB, shape=shape, bound=1.0)
            return ops.open(getattr(ops, verb)(x, w), to=(ALICE,), what="y", why="test")

        ones = torch.full(shape, 0.5, dtype=torch.float64)
        given = {"work": work, "inputs": {ALICE: {"x": ones}, BOB: {"w": ones}}}
        sent = cheating.run(None, **given).sent[BOB]
        tag = [tag for tag, _, words in sent if words.numel() == ones.numel()][-2]
        lie = cheating.Liar(BOB, tag, ALICE, test_cheating.add(63), steady=True)
        assert ALICE not in cheating.run(lie, **given).values


def test_the_checks_pass_on_the_code_as_it_is():
    dropout_drops()
    tags_are_clean()
    transcripts_are_clean()
    test_permuted.carry_nothing()


def test_every_kind_of_draw_is_found():
    assert len(list(draw_sites())) >= 15


@pytest.mark.parametrize(("name", "line", "column"), list(draw_sites()))
def test_a_missing_mask_is_noticed(monkeypatch, name, line, column):
    module, copy = mutated_module(name, line, column)
    install(monkeypatch, module, copy)
    checks = [dropout_drops, transcripts_are_clean, test_permuted.carry_nothing]
    if "checked" in name:
        checks = [tags_are_clean]
    elif "two_party" in name:
        checks = [test_without_dealer.assert_clean]
    elif any(word in name for word in ("permuted", "order", "dummies")):
        checks.reverse()  # the likely one first
    assert any(map(complains, checks)), (
        f"{name}:{line}: the mask is gone, and no transcript test of its protocol noticed"
    )


def dropout_drops():
    """Half of the values are gone; of 400 fair coins all but one in 1e20 are between these."""

    def program(ops):
        x = ops.input("x", owner=ALICE, shape=(400,), bound=1.0)
        return ops.open(ops.dropout(x, 0.5), to=(ALICE,), what="y", why="test")

    kept = simulate(program, inputs={ALICE: {"x": torch.ones(400)}}).values[ALICE] > 0
    assert 100 < int(kept.sum()) < 300


def complains(check):
    try:
        check()
    except AssertionError:
        return True
    return False
