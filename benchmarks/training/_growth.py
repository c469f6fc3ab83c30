"""How a training step grows, from plans alone: bytes and rounds are exact, nothing is run.

    python benchmarks/run.py training/_growth

A block as GPT-2 and BERT have it (attention, two norms, a hidden layer of four times the width),
sealed, stochastic gradient descent, one row. And a step with differential privacy beside the same
step without: softmax regression on 50,000 rows of 1,280 features.
"""

import json
import time
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional
from training._plans import plan_of

from tacit.mpc import Plan, Roles
from tacit.mpc.walker import Walker
from tacit.training import Privacy, Programs, Training, TrainModel
from tacit.training.schedule import TrainingWalk

ROLES = Roles("north", "south", "dealer")


class Block(nn.Module):
    """Attention and a hidden layer behind norms."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        q, k, v = self.cut(q), self.cut(k), self.cut(v)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))

    def cut(self, x: Tensor) -> Tensor:
        """Cut the width into heads."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Model(nn.Module):
    """Blocks, and scores of the mean of all tokens."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 64)) for _ in range(layers)))
        self.head = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Score rows."""
        out: Tensor = self.head(self.blocks(x).mean(dim=1))
        return out


def main() -> None:
    """Print both tables as JSON."""
    shapes = [(128, 64, 1), (256, 64, 1), (512, 64, 1), (768, 64, 1), (768, 128, 1), (768, 256, 1)]
    shapes += [(256, 64, 2), (256, 64, 4), (1024, 128, 1)]
    steps = [transformer(*shape) for shape in shapes]
    large = steps[-1]
    found: dict[str, Any] = {"steps": steps, "RoBERTa-large, 24 layers, of one layer": {}}
    for what in ("MB online", "MB offline", "rounds"):
        found["RoBERTa-large, 24 layers, of one layer"][what] = round(24 * large[what])
    found["privacy"] = [softmax_regression(is_private=one) for one in (False, True)]
    print(json.dumps(found, indent=1))


def transformer(width: int, tokens: int, layers: int) -> dict[str, Any]:
    """Plan a step on one row."""
    begun = time.perf_counter()
    plan = plan_of(
        Model(width, layers),
        (tokens, width),
        {"north": 2},
        roles=ROLES,
        model=TrainModel(bound=0.5, cap=8.0),
        training=Training(batch=1),
        test_rows=1,
    )
    task = replace(plan, cap=1.0)
    walker = Walker(ROLES, protocol="sealed", frac_bits=task.frac_bits)
    plan = walker.plan(partial(Programs(task).step, rate=0.1))
    shape = {"width": width, "tokens": tokens, "layers": layers}
    return {**shape, **cost(plan), "planned in s": round(time.perf_counter() - begun, 1)}


def softmax_regression(*, is_private: bool) -> dict[str, Any]:
    """Plan a step on all rows, which were opened under their masks before where it is private."""
    rows, columns = 50_000, 1280
    task = plan_of(
        nn.Linear(columns, 10),
        (columns,),
        {"north": rows // 2, "south": rows // 2},
        roles=ROLES,
        model=TrainModel(bound=64.0),
        training=Training() if is_private else Training(batch=rows - 1),
        test_rows=0 if is_private else 1,
        privacy=Privacy(epsilon=2.0, delta=1e-6) if is_private else None,
    )
    walk = TrainingWalk(task)
    first = walk.plan("step", rate=0.1)
    walk.run("step", rate=0.1)
    later = walk.plan("step", rate=0.1)
    return {"private": is_private, "first": cost(first), "later": cost(later)}


def cost(plan: Plan) -> dict[str, Any]:
    """Say what a plan sends."""
    found = plan.forecast().cost
    sent = {"online": 0, "offline": 0}
    for one in found.traffic:
        sent[one.phase] += one.payload_bytes
    return {
        "MB online": round(sent["online"] / 1e6, 1),
        "MB offline": round(sent["offline"] / 1e6, 1),
        "rounds": found.online_rounds,
    }


if __name__ == "__main__":
    main()
