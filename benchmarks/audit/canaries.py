"""Canaries in a language model: how exposed they are without protection and under DP-SGD.

    python benchmarks/run.py audit/canaries --data FOLDER --out FILE.json [--quick] [--workers N]

Every training holds several canaries, "ann's pin number is 31337", in ten copies each, in the TREC
questions, and each has a twin: another number in the same sentence, drawn alike and never planted.
Twins must come out at chance, 1.44 bits on average, whatever the model. Two units are protected: a
record, so that ten copies are ten of them, and a client, so that all copies are one. Beside the
measurement stands the mean exposure that the accountant's (ε, δ) prove not to be passed.
"""

import argparse
import json
import math
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from audit._texts import DELTA, KNOWN, LENGTH, Course, encode, perplexity, questions, teach

from tacit.audit import seeded
from tacit.audit.estimators import mean_interval
from tacit.audit.memorisation import (
    Format,
    draw_canary,
    exact_exposures,
    plant,
    proven_exposure,
    see_module,
)
from tacit.dp import ACCOUNTANTS, Repeated

Row = dict[str, Any]
NAMES = (
    *("ann", "bob", "carl", "dora", "emil", "fay", "gus", "hana"),
    *("ivan", "jane", "karl", "lena", "max", "nora", "otto", "paul"),
    *("quinn", "rosa", "sven", "tina", "ugo", "vera", "will", "xenia"),
    *("yuri", "zoe", "abel", "bea", "cleo", "dirk", "eva", "finn"),
)
DELTAS = tuple(10.0**-k for k in range(1, 13)) + tuple(3 * 10.0**-k for k in range(1, 8))


def trainings(options: argparse.Namespace) -> list[tuple[float, str, int]]:
    """List budget, unit and seed; all settings come once before any comes twice."""
    wanted = []
    for seed in range(options.first, options.first + options.seeds):
        for budget in options.budgets:
            units = ["record"] if math.isinf(budget) else options.units
            if math.isinf(budget) and seed >= options.first + options.open_seeds:
                continue
            wanted += [(budget, unit, seed) for unit in units]
    return wanted


def train(options: argparse.Namespace, budget: float, unit: str, seed: int) -> Row:
    """Plant canaries, train one model, and rank the canaries and their twins."""
    torch.set_num_threads(1)
    begun = time.perf_counter()
    texts, test = questions(options.data, most=300 if options.quick else None)
    forms = [
        Format(
            prefix=tuple(encode(f"{name}'s pin number is ", is_padded=False)),
            alphabet=tuple(encode("0123456789", is_padded=False)),
            blanks=3 if options.quick else 5,
        )
        for name in NAMES[: options.canaries]
    ]
    chance = seeded(seed)
    numbers = [[draw_canary(form, generator=chance) for _ in range(2)] for form in forms]
    holders = list(range(len(texts)))
    for who, (form, (planted, _)) in enumerate(zip(forms, numbers, strict=True)):
        text = (*form.text(planted), *encode("")[len(form.prefix) + form.blanks :])
        texts = plant(texts, text, times=options.copies)
        # The owners are planted in the same places.
        holders = [
            one for (one,) in plant([(h,) for h in holders], (-1 - who,), times=options.copies)
        ]
    course = Course.quick(options.device) if options.quick else Course(device=options.device)
    owners = torch.tensor(holders) if unit == "client" else None
    model, event = teach(course, torch.tensor(texts), budget, seed, owners=owners)
    seen = see_module(model, vocab=len(KNOWN), context=LENGTH)
    found = [
        [one.value for one in exact_exposures(seen, form, pair)]
        for form, pair in zip(forms, numbers, strict=True)
    ]
    copies = options.copies if unit == "record" else 1
    return {
        "budget": None if math.isinf(budget) else budget,
        "unit": unit,
        "seed": seed,
        "copies": options.copies,
        "bits": forms[0].bits,
        "planted": [planted for planted, _ in found],
        "twins": [twin for _, twin in found],
        "test_perplexity": perplexity(model, test),
        "seconds": time.perf_counter() - begun,
        **(proven(event, forms[0], copies) if event else {}),
    }


def proven(event: Repeated, form: Format, copies: int) -> Row:
    """Return the ε that was spent and the mean exposure that it proves not to be passed."""
    known = ACCOUNTANTS["fourier"]
    claims = [(known.epsilon([event], delta=delta), delta) for delta in DELTAS]
    return {
        "epsilon": known.epsilon([event], delta=DELTA),
        "delta": DELTA,
        "proven": proven_exposure(form, claims, copies=copies),
    }


def summary(rows: list[Row]) -> list[Row]:
    """Return a line per setting: means over trainings, intervals over trainings."""
    settings = sorted({(row["budget"] or math.inf, row["unit"]) for row in rows})
    return [
        _line([row for row in rows if (row["budget"] or math.inf, row["unit"]) == one])
        for one in settings
    ]


def _line(rows: list[Row]) -> Row:
    line = {key: rows[0].get(key) for key in ("budget", "unit", "copies", "epsilon", "proven")}
    for kind in ("planted", "twins"):
        values = [value for row in rows for value in row[kind]]
        means = [sum(row[kind]) / len(row[kind]) for row in rows]
        line[kind] = [round(value, 3) for value in mean_interval(means)]
        line[f"largest_{kind}"] = round(max(values), 2)
        line[f"share_beyond_4_bits_{kind}"] = sum(value > 4 for value in values) / len(values)
    line["trainings"], line["canaries"] = len(rows), sum(len(row["planted"]) for row in rows)
    line["test_perplexity"] = sum(row["test_perplexity"] for row in rows) / len(rows)
    return line


def main() -> None:
    """Train until all is done or the time is up; write after every training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--canaries", type=int, default=16, help="in every training")
    parser.add_argument("--copies", type=int, default=10, help="of each canary")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--open-seeds", type=int, default=4, help="trainings without protection")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--budgets", type=float, nargs="+", default=[math.inf, 8.0, 2.0, 1.0])
    parser.add_argument("--units", nargs="+", default=["record", "client"])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after")
    parser.add_argument("--quick", action="store_true", help="tiny models, one seed, few steps")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.canaries, options.budgets = 1, 4, [math.inf, 8.0]
    run(options)


def run(options: argparse.Namespace) -> None:
    """Keep the workers busy; what is ready is shown and written."""
    begun, rows, work = time.perf_counter(), [], trainings(options)
    # A process per training: what one leaves behind on a device must not spoil the next.
    with ProcessPoolExecutor(options.workers, get_context("spawn"), max_tasks_per_child=1) as pool:
        busy = set()
        while work or busy:
            while work and len(busy) < options.workers:
                busy.add(pool.submit(train, options, *work.pop(0)))
            done, busy = wait(busy, return_when=FIRST_COMPLETED)
            rows += [one.result() for one in done if one.exception() is None]
            for problem in (one.exception() for one in done):
                print(f"failed: {problem}" if problem else json.dumps(_line(rows[-1:])), flush=True)
            if options.out and rows:
                found = {"summary": summary(rows), "trainings": rows}
                options.out.write_text(json.dumps(found))
            if time.perf_counter() - begun > options.seconds:
                work = []
    for line in summary(rows):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
