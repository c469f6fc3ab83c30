"""Remove and halve every draw of noise in the code, one at a time: the checks must notice each.

The places are found by reading the source of the rooms that add noise, so a mechanism that is
written tomorrow is covered tomorrow: without a check of its noise this test fails.
"""

import ast
import importlib
import inspect
from pathlib import Path

import pytest
import torch

import tacit
from tacit import dp, federated, training
from transcript import test_noise

SOURCE = Path(inspect.getfile(tacit)).parents[1]
ROOMS = [Path(inspect.getfile(room)).parent for room in (dp, federated, training)]
SAMPLERS = {"discrete_gaussian", "discrete_laplace", "normal", "draw"}
"""Return noise: it is multiplied."""
ADDERS = {"add_gaussian", "add_laplace", "add_binomial", "add_noise", "GAUSSIANS"}
"""Return (noisy, event) of their first argument: the difference is multiplied."""
OTHERS = {"on_grid": "_drawn_back", "_heads": "_few_heads", "_sign": "_surer", "_tilt": "_scaled"}
"""Noise of other forms: on a grid, as heads of coins, as a truth that is told or not."""

MODES = {"removed": 0.0, "halved": 0.5}
EQUIVALENT = {("tacit.federated.objective", "normal")}
"""Where halving changes nothing: the length of a direction is set afterwards."""
NO_NOISE = {("tacit.dp.response", "lean")}
"""Where a draw is not what hides: the estimate of short vectors."""

FIRST = {
    "tacit.dp.additive": ("additive_noise", "laplace", "whole numbers"),
    "tacit.dp.private": ("records",),
    "tacit.dp.bounded": ("following clip",),
    "tacit.dp.sparse": ("sparse vector",),
    "tacit.dp.response": ("shuffled",),
    "tacit.dp.dpsgd": ("steps",),
    "tacit.federated.adaptive": ("contributions", "selected"),
    "tacit.federated.objective": ("objective", "release"),
    "tacit.federated.secagg.sides": ("masked",),
    "tacit.federated.plain": ("plain", "downlink"),
    "tacit.federated": ("plain, ", "masked"),
    "tacit.federated.shuffled.plan": ("shuffled",),
    "tacit.training.noise": ("training, makers", "training, alone"),
}
"""The checks that are near a module; nothing else is tried for it."""


def _name(node):
    if isinstance(node, ast.Subscript):  # GAUSSIANS[kind](…)
        node = node.value
    return getattr(node, "id", getattr(node, "attr", None))


def _is_draw(module, node):
    if isinstance(node, ast.Call):
        name = _name(node.func)
        known = name in SAMPLERS | ADDERS | OTHERS.keys() and bool(node.args)
        return known and (module, getattr(node.args[0], "id", None)) not in NO_NOISE
    # A response is uniform where a coin falls below a threshold.
    is_coin = isinstance(node, ast.Compare) and _name(getattr(node.left, "func", None)) == "below"
    return is_coin and getattr(node.comparators[0], "id", "") == "threshold"


def draw_sites():
    for room in ROOMS:
        for path in sorted(room.rglob("*.py")):
            module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text())):
                if not _is_draw(module, node):
                    continue
                name = _name(node.func) if isinstance(node, ast.Call) else "threshold"
                for mode in MODES:
                    if mode == "halved" and (module, name) in EQUIVALENT:
                        continue
                    place = (node.lineno, node.col_offset)
                    label = f"{module}:{name}:{place[0]}:{mode}"
                    # Of two equal noises one is halved: it takes many draws to see.
                    is_long = module == "tacit.dp.sparse" and mode == "halved"
                    marks = [pytest.mark.slow] if is_long else []
                    yield pytest.param(module, place, mode, id=label, marks=marks)


class LessNoise(ast.NodeTransformer):
    """Put a function around one draw that makes less of it."""

    def __init__(self, module, place):
        self.module, self.place, self.hits = module, place, 0

    def visit(self, node):
        node = self.generic_visit(node)
        is_here = _is_draw(self.module, node) and (node.lineno, node.col_offset) == self.place
        if not is_here:
            return node
        self.hits += 1
        if isinstance(node, ast.Compare):
            node.comparators = [_call("_scaled", node, node.comparators[0])]
            return node
        name = _name(node.func)
        if name == "_sign":
            node.args[0] = _call("_surer", node, node.args[0])
            return node
        if name in ADDERS:
            return _call("_nearer", node, node, node.args[0])
        if name in ("on_grid", "_heads"):
            return _call(OTHERS[name], node, node, node.args[1 if name == "on_grid" else 2])
        return _call("_scaled", node, node)


def _call(name, place, *arguments):
    # The generator still advances, so that nothing else changes.
    call = ast.Call(func=ast.Name(name, ast.Load()), args=list(arguments), keywords=[])
    return ast.copy_location(call, place)


def mutate(monkeypatch, name, place, factor):
    """Give the functions of a module the code of a module with less noise."""
    module = importlib.import_module(name)
    transformer = LessNoise(name, place)
    source = ast.parse(Path(module.__file__).read_text())
    tree = ast.fix_missing_locations(transformer.visit(source))
    assert transformer.hits == 1
    codes = dict(_codes(compile(tree, module.__file__, "exec")))
    for function in _functions(module):
        changed = codes.get(function.__code__.co_qualname)
        if changed is not None and changed != function.__code__:
            monkeypatch.setattr(function, "__code__", changed)
    for helper, less in _helpers(factor).items():
        monkeypatch.setattr(module, helper, less, raising=False)


def _codes(code):
    for inner in code.co_consts:
        if inspect.iscode(inner):
            yield inner.co_qualname, inner
            yield from _codes(inner)


def _functions(module):
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(thing):
            yield thing
        elif inspect.isclass(thing):
            members = vars(thing).values()
            methods = (getattr(one, "__func__", getattr(one, "fget", one)) for one in members)
            yield from (one for one in methods if inspect.isfunction(one))


def _helpers(factor):
    def scaled(value):
        if isinstance(value, torch.Tensor):
            return (value * factor).to(value.dtype)
        return (
            type(value)(value * factor)
            if isinstance(value, int | float)
            else ((value * factor).astype(value.dtype))
        )

    def nearer(found, bare):
        noisy, event = found
        return (bare + (noisy - bare) * factor).to(noisy.dtype), event

    return {
        "_scaled": scaled,
        "_nearer": nearer,
        "_drawn_back": lambda noisy, bare: bare + factor * (noisy - bare),
        "_few_heads": lambda heads, trials: trials // 2 + scaled(heads - trials // 2),
        "_surer": lambda probability: 1 - factor * (1 - probability),
    }


def test_every_kind_of_draw_is_found():
    found = [one.id for one in draw_sites()]
    for word in ("grid:discrete_gaussian", "sides:draw", "plain:on_grid", "response:_sign",
                 "response:threshold", "dpsgd:add_noise", "sparse:discrete_laplace"):  # fmt: skip
        assert any(word in one for one in found), word


@pytest.mark.parametrize(("name", "place", "mode"), list(draw_sites()))
def test_less_noise_is_noticed(monkeypatch, name, place, mode):
    mutate(monkeypatch, name, place, MODES[mode])
    near = next(
        FIRST[room] for room in sorted(FIRST, key=len, reverse=True) if name.startswith(room)
    )
    checks = [
        test_noise.CHECKS[one] for one in test_noise.CHECKS if any(word in one for word in near)
    ]
    assert any(complains(*check) for check in checks)


def complains(check, *arguments):
    try:
        check(*arguments)
    except (AssertionError, ZeroDivisionError):  # a direction of length 0 cannot be scaled
        return True
    return False
