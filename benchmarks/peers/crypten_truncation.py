"""How often CrypTen's products are grossly wrong, and where the error of its GELU comes from.

``crypten_truncation.py [MILLIONS]``, in CrypTen's environment (`python benchmarks/run.py
mpc/operations --peers` makes it in ``benchmarks/.peers/crypten``). Two parties drop the 16 fraction
bits that a product gains by shifting their halves, without talking: the one
round of a product. Halves that wrapped around the
ring then differ by 2^64 / 2^16 words, which is 2^32. With uniform halves of z = x·y·2^32 this
happens with a probability of |z| / 2^64; the script counts.
"""

import importlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
from crypten_peer import OPERATIONS, import_crypten, start_parties
from mpc._rows import Row, find_answer, make_operands

PRODUCTS = (2.0**8, 2.0**12, 2.0**16)
BATCH = 1_000_000
GROSS = 1.0
SERIES = 8  # CrypTen's default number of terms after the first


def take_part(millions: int) -> None:
    """Multiply and compare, as one of the parties; both know everything here."""
    crypten = import_crypten()
    crypten.init()
    torch = importlib.import_module("torch")
    for _ in sys.stdin:
        with crypten.no_grad():
            products = [_count(crypten, torch, size, millions) for size in PRODUCTS]
            answer = {"products": products, "gelu": _trace_gelu(crypten, torch)}
        print(json.dumps(answer), flush=True)


def _count(crypten: Any, torch: Any, size: float, millions: int) -> dict[str, float]:
    """Count products of that size which are off by more than one."""
    factor, gross, largest = math.sqrt(size), 0, 0.0
    values = torch.full((BATCH,), factor, dtype=torch.float64)
    for _ in range(millions):
        x, y = (crypten.cryptensor(values, src=src) for src in (0, 1))
        off = (_reveal(x * y) - size).abs()
        gross += int((off > GROSS).sum())
        largest = max(largest, float(off.max()))
    expected = millions * BATCH * size * 2.0**32 / 2.0**64
    return {
        "size": size,
        "count": millions * BATCH,
        "gross": gross,
        "expected": expected,
        "largest_error": largest,
    }


def _trace_gelu(crypten: Any, torch: Any) -> dict[str, float]:
    """Compare GELU with the exact one, and with what its series gives in double precision."""
    row = Row.parse("gelu-100000")
    (operand,) = make_operands(row)
    x, exact = operand.values, find_answer(row)
    series = x * (_series(x / math.sqrt(2)) + 1) / 2
    got = _reveal(OPERATIONS["gelu"](crypten.cryptensor(torch.tensor(x), src=0))).numpy()
    return {
        "largest_error": float(np.abs(got - exact).max()),
        "largest_error_of_series": float(np.abs(series - exact).max()),
        "off_by_more_than_one": int((np.abs(got - exact) > GROSS).sum()),
        "series_off_by_more_than_one": int((np.abs(series - exact) > GROSS).sum()),
    }


def _series(z: Any) -> Any:
    """Add up the terms of the error function's series that CrypTen takes."""
    terms = (
        (-1) ** n * z ** (2 * n + 1) / (math.factorial(n) * (2 * n + 1)) for n in range(SERIES + 1)
    )
    return 2 / math.sqrt(math.pi) * sum(terms)


def _reveal(secret: Any) -> Any:
    """Read the ring words: CrypTen's own decoding is off by one for some negative numbers."""
    return secret.reveal().double() / secret.encoder.scale


def lead(millions: str) -> None:
    """Start the parties, ask once, and print what the first found."""
    crew = start_parties(__file__, millions)
    print(json.dumps(crew.ask({})[0], indent=1))
    crew.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--party"]:
        take_part(int(sys.argv[2]))
    else:
        lead(sys.argv[1] if len(sys.argv) > 1 else "16")
