"""Training speed of a split model against the same model in one process, and across a slow line.

Run as a program: python benchmarks/run.py split/speed --device cpu --out speed.json
Two processes with TLS links on this machine, one thread each; the round-trip time comes from
links that hold every frame back. Rows are random: only the speed is looked at. Every repeat
measures one process and then every setting; what counts is the median of the repeats' ratios. On
a machine with other things to do the figures mean nothing: two processes get more of it than one.
With --accuracy FOLDER the MLP learns MNIST instead, with one batch in flight and with more.
"""

import argparse
import json
import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from split._bare import Wire, train_bottom, train_top
from split._tasks import Data, load
from torch import Tensor, nn

from tacit.crypto import Identity, load_identity, make_identity
from tacit.party import Meeting, Progress, run_threads, session_over
from tacit.split import (
    BottomTrainer,
    Compression,
    CutSpec,
    Flat,
    SplitData,
    SplitSpec,
    TopTrainer,
    TrainingPace,
    cut,
    make_model,
)
from tacit.split.stepping import make_optimiser
from tacit.transport import Credentials, Meter, Peer, ShapedLink, listen, mesh

NAMES = ("clinic", "lab")
MODELS: dict[str, tuple[tuple[int, ...], int]] = {
    "mlp": ((28, 28), 128),
    "two-conv": ((28, 28), 128),
    "resnet20": ((3, 32, 32), 64),
}
STEPS = {"mlp": 400, "two-conv": 60, "resnet20": 12}
CLASSES = 10
Setting = dict[str, Any]


def main() -> None:
    """Measure every setting in every repeat, and print the medians of the ratios."""
    asked = _options()
    if asked.accuracy is not None:
        return _compare_accuracy(asked)
    rows: list[Setting] = []
    for model in asked.models:
        for repeat in range(asked.repeats):
            alone = _run_alone(model, asked)
            rows.append({"model": model, "name": "one process", "rows_per_s": alone})
            for setting in _settings(model, asked.quick):
                if asked.only and setting["name"] not in asked.only:
                    continue
                speed = _run_pair(model, setting, asked)
                share = speed / alone
                rows.append({"model": model, **setting, "rows_per_s": speed, "share": share})
            print(f"{model}: repeat {repeat + 1} of {asked.repeats}", flush=True)
            _write(asked, rows)
    for line in _summarise(rows):
        print(
            f"{line['model']:9} {line['name']:36} {line['rows_per_s']:9.0f} rows/s  "
            f"{100 * line['share']:6.1f} % of one process ({100 * line['least']:.1f} to "
            f"{100 * line['most']:.1f}, {line['repeats']} repeats)"
        )


def _compare_accuracy(asked: argparse.Namespace) -> None:
    """Print what the MLP gets right with gradients of weights that are 0, 1 and 3 steps old."""
    data = load("mnist", asked.accuracy, device=asked.device)
    for flight in (1, 2, 4):
        shares = [100 * _learn(flight, seed, data, asked) for seed in range(asked.repeats)]
        spread = statistics.stdev(shares) if len(shares) > 1 else float("nan")
        print(
            f"{flight} in flight: {statistics.mean(shares):.2f} % of the test rows right, "
            f"deviation {spread:.2f}, {len(shares)} seeds, {TrainingPace().epochs} epochs",
            flush=True,
        )


def _learn(flight: int, seed: int, data: Data, asked: argparse.Namespace) -> float:
    torch.manual_seed(seed)
    whole = make_model("mlp", shape=data.shape, classes=data.classes, width=128).to(asked.device)
    bottom, top = cut(whole, "cut")
    task = SplitSpec(
        data=SplitData(features=("clinic",), labels="lab", classes=data.classes),
        train=TrainingPace(batch=asked.batch, in_flight=flight),
    )
    programs = {
        "clinic": lambda session: BottomTrainer(session, task, Flat(bottom), data.train_x).run(),
        "lab": lambda session: TopTrainer(
            session, task, top, data.train_y, widths={"clinic": 128}
        ).run(),
    }
    run_threads(programs, Meeting(parties=NAMES, job_digest=b"s" * 32))
    with torch.no_grad():
        return float((whole.eval()(data.test_x).argmax(1) == data.test_y).float().mean())


def _summarise(rows: list[Setting]) -> list[Setting]:
    groups: dict[tuple[str, str], list[Setting]] = {}
    for row in rows:
        groups.setdefault((row["model"], row["name"]), []).append(row)
    found = []
    for (model, name), members in groups.items():
        shares = [one.get("share", 1.0) for one in members]
        found.append(
            {
                "model": model,
                "name": name,
                "rows_per_s": statistics.median(one["rows_per_s"] for one in members),
                "share": statistics.median(shares),
                "least": min(shares),
                "most": max(shares),
                "repeats": len(members),
            }
        )
    return found


def _write(asked: argparse.Namespace, rows: list[Setting]) -> None:
    if asked.out is not None:
        content = {"torch": torch.__version__, "device": asked.device, "summary": _summarise(rows)}
        asked.out.write_text(json.dumps({**content, "rows": rows}, indent=1) + "\n")


def _settings(model: str, quick: bool) -> list[Setting]:
    def setting(name: str, rtt_ms: float, **how: Any) -> Setting:
        plain = {"k": None, "micro": 1, "flight": 1, "bare": False}
        return {"name": name, "rtt_ms": rtt_ms, **plain, **how}

    found = [
        setting("loopback", 0.0),
        setting("loopback, bare exchange", 0.0, bare=True),
        setting("loopback, 2 micro-batches", 0.0, micro=2),
        setting("loopback, 2 in flight", 0.0, flight=2),
        setting("loopback, 4 in flight", 0.0, flight=4),
        setting("loopback, randtopk k=3", 0.0, k=3),
        setting("20 ms, no pipeline", 20.0),
        setting("20 ms, 8 in flight", 20.0, flight=8),
        setting("20 ms, 8 in flight, randtopk k=3", 20.0, flight=8, k=3),
    ]
    if model == "resnet20":  # a step takes longer than the line: there is nothing to overlap
        found = [one for one in found if not one["rtt_ms"]]
    return found[:2] if quick else found


def _task(setting: Setting, asked: argparse.Namespace) -> SplitSpec:
    compression = Compression()
    if setting["k"] is not None:
        compression = Compression(kind="randtopk", k=setting["k"])
    return SplitSpec(
        data=SplitData(features=("clinic",), labels="lab", classes=CLASSES),
        split=CutSpec(compress=compression),
        train=TrainingPace(
            epochs=1,
            batch=asked.batch,
            micro_batches=setting["micro"],
            in_flight=setting["flight"],
        ),
    )


def _rows(model: str, asked: argparse.Namespace) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_steps(model, asked) * asked.batch, *MODELS[model][0], generator=generator)
    y = torch.randint(0, CLASSES, (len(x),), generator=generator)
    return x.to(asked.device), y.to(asked.device)


def _whole(model: str, asked: argparse.Namespace) -> nn.Module:
    torch.manual_seed(0)
    shape, width = MODELS[model]
    return make_model(model, shape=shape, classes=CLASSES, width=width).to(asked.device)


def _steps(model: str, asked: argparse.Namespace) -> int:
    return int(asked.steps or STEPS[model])


def _run_alone(model: str, asked: argparse.Namespace) -> float:
    """Train the whole model in a fresh process, as the parties are."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=_alone, args=(model, asked, answers))
    child.start()
    seconds = answers.get(timeout=600)
    child.join(60)
    return _steps(model, asked) * asked.batch / seconds


def _alone(model: str, asked: argparse.Namespace, answers: Any) -> None:
    torch.set_num_threads(1)
    (x, y), whole = _rows(model, asked), _whole(model, asked)
    optimiser = make_optimiser(whole, TrainingPace())
    order = torch.randperm(len(x), device=x.device)
    whole.train()
    began = time.monotonic()
    for at in range(0, len(x), asked.batch):
        chosen = order[at : at + asked.batch]
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(whole(x[chosen]), y[chosen]).backward()
        optimiser.step()
    if asked.device.startswith("cuda"):
        torch.cuda.synchronize()
    answers.put(time.monotonic() - began)


def _run_pair(model: str, setting: Setting, asked: argparse.Namespace) -> float:
    """Run both parties as processes; the slower one's training stage is the time."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        for name in NAMES:
            make_identity(name, Path(folder) / name)
        port, answers = context.Queue(), context.Queue()
        children = [
            context.Process(
                target=_party, args=(name, model, setting, asked, folder, port, answers)
            )
            for name in NAMES
        ]
        for child in children:
            child.start()
            stack.callback(child.join, 60)
        seconds = [answers.get(timeout=600) for _ in NAMES]
    return _steps(model, asked) * asked.batch / max(seconds)


def _party(
    me: str,
    model: str,
    setting: Setting,
    asked: argparse.Namespace,
    folder: str,
    port: Any,
    answers: Any,
) -> None:
    torch.set_num_threads(1)
    identities = {name: load_identity(Path(folder) / name, name) for name in NAMES}
    (x, y), whole, task = _rows(model, asked), _whole(model, asked), _task(setting, asked)
    bottom, top = cut(whole, "cut")
    if setting["bare"]:
        wire = _bare_wire(me, identities[me], port)
        if me == "clinic":
            answers.put(train_bottom(wire, Flat(bottom), x, batch=asked.batch))
        else:
            width = MODELS[model][1]
            answers.put(train_top(wire, top, y, batch=asked.batch, width=width))
        return
    progress, meter = Progress(), Meter(me)
    with ExitStack() as stack:
        listener, where = None, None
        if me == NAMES[0]:
            listener = stack.enter_context(listen("127.0.0.1", 0))
            port.put(listener.getsockname()[1])
        else:
            where = ("127.0.0.1", port.get(timeout=60))
        links = _connect(me, identities, listener, where, meter, setting["rtt_ms"])
        meeting = Meeting(parties=NAMES, job_digest=b"s" * 32)
        with session_over(me, meeting, links=links, meter=meter, progress=progress) as session:
            if me == "clinic":
                BottomTrainer(session, task, Flat(bottom), x).run()
            else:
                width = MODELS[model][1]
                TopTrainer(session, task, top, y, widths={"clinic": width}).run()
            session.finish()
    span = next(span for span in progress.spans() if span.name == "train")
    answers.put(span.end_s - span.start_s)


def _bare_wire(me: str, identity: Identity, port: Any) -> Wire:
    if me == NAMES[0]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port.put(listener.getsockname()[1])
            return Wire(listener.accept()[0], identity, is_server=True)
    where = ("127.0.0.1", port.get(timeout=60))
    return Wire(socket.create_connection(where), identity, is_server=False)


def _connect(
    me: str,
    identities: dict[str, Identity],
    listener: Any,
    where: tuple[str, int] | None,
    meter: Meter,
    rtt_ms: float,
) -> dict[str, Any]:
    peer = next(name for name in NAMES if name != me)
    links = mesh(
        me,
        {peer: Peer(where, identities[peer].fingerprint)},
        credentials=Credentials(identities[me].certificate_file, identities[me].key_file),
        listener=listener,
        meter=meter,
    )
    if not rtt_ms:
        return dict(links)
    return {name: ShapedLink(link, rtt_ms=rtt_ms) for name, link in links.items()}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, help="instead of each model's own")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="only the settings of these names")
    parser.add_argument("--quick", action="store_true", help="two settings, few steps, once")
    parser.add_argument("--accuracy", type=Path, help="folder of public sets; MNIST is learned")
    parser.add_argument("--out", type=Path)
    found = parser.parse_args()
    if found.quick:
        found.steps, found.repeats, found.models = 40, 1, found.models[:1]
    return found


if __name__ == "__main__":
    sys.exit(main())
