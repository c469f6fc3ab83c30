"""`python -m fuzz.faults`: plant thirty faults in `mpc`, one at a time, and see which are found.

A fault is one changed expression of one function: another sign, a shift by one bit more, a bound
that is too small, a dimension counted from the wrong end, a key of a cache that says too little.
The code of the function is swapped in memory, so that everything that calls it has the fault. Of an
even sample of all changes of operators and constants those stand here that change a result.
"""

import ast
import functools
import gc
import importlib
import os
import pkgutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

import torch

import tacit.mpc
from fuzz.campaign import Campaign
from tacit.mpc import PROTOCOLS

ROOM = tacit.mpc.__name__
DRAWN = 400
"""Programs that are drawn for a fault before it counts as missed."""
MISSED = 2
"""How many may be."""


@dataclass(frozen=True)
class Fault:
    """A function or method of `mpc`, what is written in it, and what instead."""

    where: str
    what: str
    into: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} -> {self.into}"

    def plant(self) -> None:
        """Swap the code of the function, and forget what was made without the fault."""
        name, path, code = self._changed()
        swapped = 0
        for one in gc.get_objects():
            if type(one) is not FunctionType or one.__code__.co_filename != str(path):
                continue
            if one.__code__.co_qualname == self.where:
                one.__code__ = code
                swapped += 1
        assert swapped, f"nothing runs the code of {self}"
        # Curves take long to find, and nothing but functions has a part in them.
        kept = () if ".functions." in name else (f"{ROOM}.functions.",)
        for one in gc.get_objects():
            if type(one) is functools._lru_cache_wrapper and one.__module__.startswith(ROOM):
                one.__module__.startswith(kept) or one.cache_clear()

    def _changed(self) -> tuple[str, Path, CodeType]:
        for name, path in _files():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for scope in _functions(tree).get(self.where, ()):
                if _replace(scope, ast.parse(self.what, mode="eval").body, self.into):
                    whole = compile(ast.fix_missing_locations(tree), str(path), "exec")
                    return name, path, next(c for c in _codes(whole) if c.co_qualname == self.where)
        raise AssertionError(f"{self.where} has no {self.what!r} any more: plant another fault")


def _files() -> Iterator[tuple[str, Path]]:
    for one in pkgutil.walk_packages(tacit.mpc.__path__, ROOM + "."):
        if not one.ispkg:
            yield one.name, Path(str(importlib.import_module(one.name).__file__))


def _functions(tree: ast.Module) -> dict[str, list[ast.FunctionDef]]:
    """List functions and methods by their qualified names."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for one in tree.body:
        if isinstance(one, ast.FunctionDef):
            found.setdefault(one.name, []).append(one)
        elif isinstance(one, ast.ClassDef):
            for inner in one.body:
                if isinstance(inner, ast.FunctionDef):
                    found.setdefault(f"{one.name}.{inner.name}", []).append(inner)
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _replace(scope: ast.AST, old: ast.expr, new: str) -> bool:
    """Replace the first expression that reads the same; tell whether there was one."""
    wanted = ast.dump(old)
    for node in ast.walk(scope):
        for name, value in ast.iter_fields(node):
            several = value if isinstance(value, list) else [value]
            for at, one in enumerate(several):
                if isinstance(one, ast.expr) and ast.dump(one) == wanted:
                    other = ast.parse(new, mode="eval").body
                    if isinstance(value, list):
                        value[at] = other
                    else:
                        setattr(node, name, other)
                    return True
    return False


PLANTED = (
    # functions
    Fault("clamp", "low > high", "low >= high"),
    Fault("_exps_below_largest", "bool(seen.all())", "not bool(seen.all())"),
    Fault("_close_above", "ops.shape(levels)[-1] // 2", "ops.shape(levels)[-1] // 2 + 1"),
    Fault("_exact", "round(outline.low * 2**frac_bits)", "round(outline.low * 2**frac_bits) + 1"),
    Fault("interpolate", "power * frac_bits", "power * (frac_bits + 1)"),
    Fault("norm_rows", "length * 1.001", "length * 0.5"),
    Fault("_rows", "ops.scale(x, count)", "ops.scale(x, count + 1)"),
    Fault("network", "length - j - k", "length - j + k"),
    Fault("_rounded", "value_bits - j * frac_bits", "value_bits + j * frac_bits"),
    Fault("rsqrt_below", "2.0**-12", "2.0**-8"),
    Fault("cross_entropy", "-shape[-1]", "shape[-1]"),
    Fault("hide", "12.0", "1.0"),
    # arithmetic
    Fault("Add._out", "one.largest << (frac_bits - one.frac_bits)", "one.largest"),
    Fault("Sum._out", "x.largest * x.shape[self.dim]", "x.largest"),
    Fault("Windows.run", "down + height", "down + height - 1"),
    Fault("lift", "spec.frac_bits == frac_bits", "spec.frac_bits != frac_bits"),
    Fault("Offset.run", "out.frac_bits - self.amounts.frac_bits", "out.frac_bits"),
    Fault("Truncate.run", "-words", "words"),
    Fault("broadcast", "(1,) * (wide - len(shape)) + shape", "shape + (1,) * (wide - len(shape))"),
    Fault("public_part", "ring_bits - drop", "ring_bits - drop + 1"),
    # protocols
    Fault("Primitives.reshape", '("reshape", shape)', '"reshape"'),
    Fault("Primitives.transpose", '("transpose", first, second)', '"transpose"'),
    Fault("SeenByHelper.attend", "instance.x", "instance.out"),
    Fault("FusedTruncateCompare._select", "carried & rows[1]", "carried | rows[1]"),
    Fault("CountReaching.run", "cells + r", "cells - r"),
    Fault("_monomials", "fan_in + i", "fan_in - i"),
    Fault("Comparison.run", "self.bits - 1", "self.bits - 2"),
    Fault("PiecewiseTagged._comparison", "x.largest + curve.reach", "x.largest - curve.reach"),
    Fault("_word_digits", "64 - rest", "64 - rest + 1"),
    Fault("TruncateTagged.run", "carried & rows[1]", "carried | rows[1]"),
)


def search(seed: int = 5000) -> int:
    """Draw programs on a fault that is planted; return after how many one is wrong, or 0."""
    campaign = Campaign([*PROTOCOLS, "modules"], seed, shrinks=False)
    for drawn in range(1, DRAWN + 1):
        campaign.go_on()
        if campaign.wrong:
            return drawn
    return 0


def main() -> int:
    """Plant each fault in a process of its own; 1 if too many are missed."""
    torch.set_num_threads(1)
    start, missed = time.process_time(), []
    assert search() == 0, "something is wrong without a fault"
    warm = time.process_time() - start
    for fault in PLANTED:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            before, drawn = time.process_time(), 1
            try:
                fault.plant()
                drawn = search()
            finally:  # what ends in an error is found as well
                os.write(writer, f"{drawn} {time.process_time() - before:.1f}".encode())
                os._exit(0)
        os.waitpid(child, 0)
        drawn, took = os.read(reader, 99).decode().split()
        missed += [fault] if drawn == "0" else []
        how = "missed" if drawn == "0" else f"found after {drawn} programs"
        print(f"{how}, {took} s: {fault}", flush=True)
    spent = os.times().children_user + os.times().children_system
    print(f"found {len(PLANTED) - len(missed)} of {len(PLANTED)}; {spent:.0f} s of processor")
    print(f"(and {warm:.0f} s for {DRAWN} programs without a fault)")
    return len(missed) > MISSED


if __name__ == "__main__":
    sys.exit(main())
