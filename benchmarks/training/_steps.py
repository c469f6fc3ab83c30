"""A private step, and a step of a Transformer block, beside SPU's: processes on loopback.

    python benchmarks/run.py training/_steps --spu .peers/spu/bin/python
    python benchmarks/run.py training/_steps --lora 1 32 256 4

Ours: three processes over TLS, one thread each; planning is left out, as is SPU's compiling. The
private step is softmax regression on all rows with clipping per record and noise, rows opened under
their masks before; beside it the same step without privacy. SPU runs the same formulas
(`peers/spu_steps.py`). One turn after the other, medians, one run. With --lora: the whole step of
the block beside steps in which the head and adapters of rank 4 learn, of all layers or of one.
"""

import argparse
import json
import statistics
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training._growth import Model
from training._parties import NAMES, ROLES, Answer, _bytes, _meet, run_parties
from training._plans import plan_of

from tacit import ring
from tacit.mpc import Share
from tacit.mpc.share import Spec
from tacit.nn import add_adapters
from tacit.party import Session
from tacit.training import Privacy, PrivacyPlan, Training, TrainModel, TrainPlan
from tacit.training.gradients import NORMS
from tacit.training.noise import draw_noise, noise_name
from tacit.training.schedule import TrainingWalk

HERE = Path(__file__).parents[1]
ADAPTED = {"block, LoRA": (), "block, LoRA of qkv": ("qkv",)}
"""Which layers get an adapter; all if none is named."""


def task_of(kind: str, sizes: tuple[int, ...], protocol: str) -> TrainPlan:
    """Return the training whose step is timed."""
    module: nn.Module
    inputs: tuple[int, ...]
    if kind.startswith("block"):
        rows, tokens, width, heads = sizes
        module = Model(width, 1)
        for one in module.modules():
            if hasattr(one, "heads"):
                one.heads = heads
        if kind in ADAPTED:
            only = ADAPTED[kind]
            module = add_adapters(module, rank=4, seed=0, only=only, keep_training=["head"])
        inputs, model = (tokens, width), TrainModel(bound=1.0, cap=8.0)
    else:
        rows, features, classes = sizes
        module, inputs, model = nn.Linear(features, classes), (features,), TrainModel(bound=64.0)
    is_private = kind.startswith("private")
    noise = "joint" if kind == "private, joint" else "parts"
    return plan_of(
        module,
        inputs,
        dict.fromkeys(ROLES.computing, rows // 2 if is_private else rows),
        roles=ROLES,
        protocol=protocol,
        model=model,
        training=Training() if is_private else Training(batch=rows),
        test_rows=0 if is_private else rows,
        privacy=Privacy(epsilon=2.0, delta=1e-5, noise=noise) if is_private else None,  # type: ignore[arg-type]
    )


def time_steps(
    session: Session, *, kind: str, sizes: tuple[int, ...], protocol: str, steps: int
) -> Answer:
    """Time steps on random rows; the first two are for warming up."""
    from time import monotonic, process_time

    task = task_of(kind, sizes, protocol)
    walk = TrainingWalk(task, session)
    walk.walker.agree()
    kept = _halves(task, is_first=session.me == ROLES.first)
    begun, worked, before = 0.0, 0.0, 0
    for number in range(steps + 2):
        if number == 2:
            _meet(session)
            begun, worked, before = monotonic(), process_time(), _bytes(session.cost())
        inputs = _noise(walk.privacy, session.me)
        walk.run("step", rate=task.spec.training.rate, inputs=inputs, kept=kept)
    plan = walk.plan("step", rate=task.spec.training.rate)
    return {
        "seconds": (monotonic() - begun) / steps,
        "processor": (process_time() - worked) / steps,
        "bytes": (_bytes(session.cost()) - before) / steps,
        "online": sum(o.payload_bytes for o in plan.cost.traffic if o.phase == "online"),
        "rounds": plan.cost.online_rounds,
    }


def _noise(privacy: PrivacyPlan | None, me: str) -> dict[str, torch.Tensor]:
    if privacy is None or me not in privacy.makers:
        return {}
    plan, prg = privacy.steps, ring.Prg.from_os()
    found = {noise_name(me): draw_noise(plan, prg)}
    if plan.step:
        from tacit.training.noise import coins_name, draw_coins

        found[coins_name(me)] = draw_coins(plan.shape, prg).double() * 2.0**-16
    return found


def _halves(task: TrainPlan, *, is_first: bool) -> dict[str, Share]:
    prg, coins = ring.Prg(b"training halves!"), torch.Generator().manual_seed(0)
    x = torch.empty(task.batch, *task.model.inputs).uniform_(-1, 1, generator=coins).double()
    x = x / x.flatten(1).norm(dim=1).reshape(-1, *(1,) * (x.dim() - 1))
    y = torch.zeros(task.batch, task.label_width)
    y[:, 0] = 1
    values = {name: (one, task.spec.weight_bound) for name, one in task.model.initial.items()}
    values |= {"x": (x, task.bound), "y": (y, 1.0)}
    values[NORMS] = (torch.ones(task.batch, 1), 1.0)
    halves = {}
    for name, (value, bound) in values.items():
        words = ring.encode(value.double(), frac_bits=task.frac_bits)
        mask = prg.words(tuple(words.shape))
        spec = Spec.of(shape=tuple(words.shape), frac_bits=task.frac_bits, bound=bound)
        halves[name] = Share(mask if is_first else words - mask, spec)
    return halves


def main() -> None:
    """Measure both kinds of step, ours and theirs in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--spu", type=Path, help="the Python of SPU's environment")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--private", type=int, nargs=3, default=[2000, 256, 10])
    parser.add_argument("--block", type=int, nargs=4, default=[2, 32, 64, 2])
    parser.add_argument("--lora", type=int, nargs=4, help="rows, tokens, width, heads")
    parser.add_argument("--protocols", nargs="+", default=["sealed", "permuted3"])
    asked = parser.parse_args()
    private, block = tuple(asked.private), tuple(asked.block)
    ours = [("private", private, "sealed"), ("private, joint", private, "sealed")]
    ours += [("without privacy", private, "sealed")]
    ours += [("block", block, protocol) for protocol in asked.protocols]
    if asked.lora is not None:
        kinds = ("block", *ADAPTED)
        ours = [(one, tuple(asked.lora), protocol) for protocol in asked.protocols for one in kinds]
    found: dict[str, list[float]] = {}
    for turn in range(asked.turns):
        for kind, sizes, protocol in ours:
            work = partial(time_steps, kind=kind, sizes=sizes, protocol=protocol, steps=asked.steps)
            answers = run_parties(work)
            first = {key: answers[0][key] for key in ("bytes", "online", "rounds")}
            first["bytes"] = sum(one["bytes"] for one in answers) / 2
            seconds = max(one["seconds"] for one in answers)
            found.setdefault(f"{kind}, {protocol}", []).append(seconds)
            worked = sum(one["processor"] for one in answers)
            print(turn, NAMES[0], kind, protocol, seconds, worked, first, flush=True)
        if asked.spu is None or asked.lora is not None:
            continue
        for name in ("semi2k", "aby3"):
            for kind, sizes in (("private", private), ("block", block)):
                script = [str(asked.spu), str(HERE / "peers" / "spu_steps.py")]
                given = [name, kind, str(asked.steps), *map(str, sizes)]
                said = subprocess.run([*script, *given], capture_output=True, text=True, check=True)
                answer: Any = json.loads(said.stdout.strip().splitlines()[-1])
                seconds = statistics.median(answer["seconds"])
                found.setdefault(f"{kind}, SPU {name}", []).append(seconds)
                worked = answer["processor"]
                print(turn, "SPU", kind, name, seconds, worked, answer["error"], flush=True)
    print(json.dumps({name: statistics.median(one) for name, one in found.items()}, indent=1))


if __name__ == "__main__":
    main()
