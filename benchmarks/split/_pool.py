"""What the split-learning benchmarks share: options, groups within a time limit, intervals."""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from split._tasks import TASKS, prepare

from tacit.audit import mean_interval

Item = dict[str, Any]


def options(
    description: str, tasks: Sequence[str], own: dict[str, Item] | None = None
) -> argparse.Namespace:
    """Read the options that all split-learning benchmarks have, and those that one has alone."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder of sets, or prepared ones")
    parser.add_argument("--prepare", type=Path, help="only write prepared sets to this folder")
    parser.add_argument("--tasks", nargs="+", default=list(tasks), choices=TASKS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes beside the training")
    parser.add_argument("--rows", type=int, help="train on so many rows at most")
    parser.add_argument("--epochs", type=int, help="instead of each task's own")
    parser.add_argument("--only", nargs="+", help="only what has one of these names")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so long")
    parser.add_argument("--quick", action="store_true", help="few rows, one epoch, one seed")
    parser.add_argument("--out", type=Path, help="write all rows as JSON")
    parser.add_argument("--resume", action="store_true", help="keep the groups that --out has")
    for name, details in (own or {}).items():
        parser.add_argument(name, **details)
    found = parser.parse_args()
    if found.prepare is not None:
        prepare(found.data, found.prepare, tuple(found.tasks))
        raise SystemExit(0)
    if found.quick:
        found.seeds, found.rows, found.epochs = 1, found.rows or 512, 1
    return found


def seeds(asked: argparse.Namespace) -> range:
    """Return the seeds that were asked for."""
    return range(asked.first_seed, asked.first_seed + asked.seeds)


def run_groups(
    groups: Iterable[tuple[str, Callable[[], list[Item]]]],
    asked: argparse.Namespace,
    report: Callable[[list[Item]], Item],
) -> list[Item]:
    """Run one group after the other; after each the file has all that is known.

    A group is not begun if one as long as the last of its kind would pass the time limit.
    """
    began, lasted = time.monotonic(), dict[str, float]()
    known = json.loads(asked.out.read_text()) if asked.resume and asked.out.exists() else {}
    rows, seconds = known.get("rows", []), known.get("seconds", [])
    done = {one["group"] for one in seconds}
    for name, work in groups:
        if name in done:
            continue
        now, kind = time.monotonic() - began, name.split()[0]
        if now + lasted.get(kind, 0.0) > asked.seconds:
            print(f"{now:.0f} s: no time for {name}", flush=True)
            continue
        rows += work()
        lasted[kind] = time.monotonic() - began - now
        print(f"{time.monotonic() - began:.0f} s: {name}, {lasted[kind]:.1f} s", flush=True)
        seconds.append({"group": name, "seconds": lasted[kind]})
        write(asked, {"seconds": seconds, "rows": rows, **report(rows)})
    return rows


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
    part = asked.out.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1, default=str) + "\n")
    part.replace(asked.out)
