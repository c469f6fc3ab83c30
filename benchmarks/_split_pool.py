"""Run many independent trainings in a few processes that share one device."""

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from _split_tasks import TASKS, Data, load, prepare

from tacit.audit import mean_interval

Item = dict[str, Any]


def options(description: str, tasks: Sequence[str]) -> argparse.Namespace:
    """Read the options that all split-learning benchmarks have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of sets, or prepared ones")
    parser.add_argument("--prepare", type=Path, help="only write prepared sets to this folder")
    parser.add_argument("--tasks", nargs="+", default=list(tasks), choices=TASKS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=int, help="train on so many rows at most")
    parser.add_argument("--epochs", type=int, help="instead of each task's own")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--quick", action="store_true", help="few rows, one epoch, one seed")
    parser.add_argument("--out", type=Path, help="write all rows as JSON")
    found = parser.parse_args()
    if found.prepare is not None:
        prepare(found.data, found.prepare, tuple(found.tasks))
        raise SystemExit(0)
    if found.quick:
        found.seeds, found.rows, found.epochs = 1, found.rows or 512, 1
    return found


def run_all(
    work: Callable[[Item], Item], items: list[Item], asked: argparse.Namespace
) -> list[Item]:
    """Run every item, show how far it is, and return the rows.

    Seed after seed, so that what is there when the time is up is whole seeds.
    """
    began, rows = time.monotonic(), []
    shared = {
        "data": str(asked.data),
        "device": asked.device,
        "rows": asked.rows,
        "epochs": asked.epochs,
    }
    full = sorted(({**shared, **item} for item in items), key=lambda item: item["seed"])
    if asked.workers == 1:
        results = map(work, full)
    else:
        pool = multiprocessing.get_context("spawn").Pool(asked.workers, initializer=_quiet)
        results = pool.imap(work, full)
    for number, row in enumerate(results, start=1):
        rows.append(row)
        label = " ".join(str(row[key]) for key in ("task", "name", "seed") if key in row)
        print(f"{number}/{len(items)} {time.monotonic() - began:.0f} s {label}", flush=True)
        if time.monotonic() - began > asked.seconds:
            print("stopped: the time is up", flush=True)
            break
    if asked.workers > 1 and len(rows) < len(items):
        pool.terminate()
    elif asked.workers > 1:
        pool.close()
        pool.join()
    return rows


def data_of(item: Item) -> Data:
    """Return an item's task, loaded once per process."""
    return _load(item["task"], item["data"], item["device"], item["rows"])


def summarise(rows: list[Item], keys: Sequence[str], by: Sequence[str]) -> list[Item]:
    """Return mean and 95 % interval of each key over the seeds of equal rows."""
    groups: dict[tuple[Any, ...], list[Item]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in by), []).append(row)
    found = []
    for which, members in groups.items():
        summary: Item = {**dict(zip(by, which, strict=True)), "seeds": len(members)}
        for key in keys:
            values = [member[key] for member in members if member.get(key) is not None]
            if values:
                mean, low, high = mean_interval(values)
                summary[key], summary[f"{key}_half"] = mean, (high - low) / 2
        found.append(summary)
    return found


def write(asked: argparse.Namespace, content: Item) -> None:
    """Write the rows with what they were measured on."""
    if asked.out is None:
        return
    device = asked.device
    if device.startswith("cuda"):
        device = torch.cuda.get_device_name()
    content = {"device": device, "torch": torch.__version__, **content}
    asked.out.write_text(json.dumps(content, indent=1, default=str) + "\n")


@lru_cache(maxsize=2)
def _load(task: str, folder: str, device: str, rows: int | None) -> Data:
    return load(task, Path(folder), device=device, rows=rows)


def _quiet() -> None:
    torch.set_num_threads(1)
