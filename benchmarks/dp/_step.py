"""One side of the DP-SGD benchmark, in a process of its own: median step time and peak memory.

python benchmarks/run.py dp/_step SIDE CASE    SIDE is "tacit", "opacus" or "plain"
"""

import json
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 6
MIB = 1 << 20


class Speaker(nn.Module):
    """A small decoder of tokens, from layers that every side knows."""

    def __init__(self, vocabulary: int = 2000, width: int = 256, layers: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.mixers = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.ups = nn.ModuleList(nn.Linear(width, 4 * width) for _ in range(layers))
        self.downs = nn.ModuleList(nn.Linear(4 * width, width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        """Return scores per token."""
        x = self.table(ids)
        for at, mixer in enumerate(self.mixers):
            q, k, v = (
                part.unflatten(-1, (4, -1)).transpose(1, 2)
                for part in mixer(self.norms[2 * at](x)).chunk(3, dim=-1)
            )
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.outs[at](mixed.transpose(1, 2).flatten(2))
            x = x + self.downs[at](F.gelu(self.ups[at](self.norms[2 * at + 1](x))))
        return self.head(x)


def make_case(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a model and one batch."""
    generator = torch.Generator().manual_seed(0)
    if name == "dense 1e7":
        model = nn.Sequential(
            nn.Linear(784, 2400), nn.ReLU(), nn.Linear(2400, 3400), nn.ReLU(), nn.Linear(3400, 10)
        )
        x = torch.randn(64, 784, generator=generator)
        return model, x, torch.randint(0, 10, (64,), generator=generator)
    if name == "convolutions":
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1),
            *(nn.GroupNorm(8, 32), nn.ReLU(), nn.Conv2d(32, 64, 3, stride=2, padding=1)),
            *(nn.GroupNorm(8, 64), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1)),
            *(nn.ReLU(), nn.Flatten(), nn.Linear(128 * 64, 10)),
        )
        x = torch.randn(32, 3, 32, 32, generator=generator)
        return model, x, torch.randint(0, 10, (32,), generator=generator)
    ids = torch.randint(0, 2000, (16, 129), generator=generator)
    if name == "adapters, 128 tokens":
        from tacit.llm.model.module import CausalModule, tiny_model
        from tacit.nn import add_adapters

        decoder = CausalModule(tiny_model(2000, layers=4, width=256))
        model = add_adapters(decoder, rank=8, seed=0)
        return model, ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    return Speaker(), ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def losses_of(scores: Tensor, y: Tensor) -> Tensor:
    """Return a loss per record."""
    if scores.ndim == 3:
        found = F.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
        return found.view(y.shape).mean(1)
    return F.cross_entropy(scores, y, reduction="none")


def run_tacit(model: nn.Module, x: Tensor, y: Tensor) -> list[float]:
    """Train with `make_private`."""
    from tacit.dp import make_private

    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    # Every record by a coin of 1: the batch is the same for all sides.
    loader = DataLoader(TensorDataset(x, y), batch_size=len(x))
    private = make_private(model, optimizer, loader, epsilon=50, delta=1e-5, epochs=STEPS, clip=1.0)
    times = []
    for _ in range(STEPS):
        for rows, labels in private.loader:
            start = time.perf_counter()
            private.step(losses_of(model(rows), labels))
            times.append(time.perf_counter() - start)
    return times


def run_opacus(model: nn.Module, x: Tensor, y: Tensor) -> list[float]:
    """Train with Opacus' ghost clipping."""
    from opacus import PrivacyEngine

    class PerRecord(nn.Module):
        reduction = "mean"

        def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
            found = losses_of(scores, labels)
            return found.mean() if self.reduction == "mean" else found

    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    loader = DataLoader(TensorDataset(x, y), batch_size=len(x))
    wrapped, optimizer, criterion, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        criterion=PerRecord(),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode="ghost",
    )
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        criterion(wrapped(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return times


def run_plain(model: nn.Module, x: Tensor, y: Tensor) -> list[float]:
    """Train without privacy."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        optimizer.zero_grad()
        losses_of(model(x), y).mean().backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return times


def main() -> None:
    """Run one side and print milliseconds and MiB as JSON."""
    side, case = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x, y = make_case(case)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    run = {"tacit": run_tacit, "opacus": run_opacus, "plain": run_plain}[side]
    times = sorted(run(model, x, y)[2:])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    sys.stdout.write(
        json.dumps({"time": times[len(times) // 2] * 1e3, "memory": grown * 1024 / MIB})
    )


if __name__ == "__main__":
    main()
