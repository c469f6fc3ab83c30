"""DP-SGD whose per-record gradients come from torch.func: for machines without Opacus."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from tacit.dp import ADD_REMOVE_CLIENT, ADD_REMOVE_RECORD, DpSgd, Poisson, Repeated, add_gaussian
from tacit.ring import Prg


def train_privately(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    settings: DpSgd,
    *,
    prg: Prg,
    owners: Tensor | None = None,
) -> Repeated:
    """Train in place as `tacit.dp.train_dp_sgd` does, and return the event.

    Guarantee: for adding or removing one record, or one owner with all records, as the event says.
    """
    whose = torch.arange(len(x)) if owners is None else owners.unique(return_inverse=True)[1]
    units = int(whose.max()) + 1
    clipped = _Clipped(model, x, labels, settings, whose)
    weights = clipped.weights
    speed = {name: torch.zeros_like(p) for name, p in weights.items()}
    noise = settings.event.event
    for _ in range(settings.steps):
        coins = prg.below(2**53, units) < round(settings.sample_rate * 2**53)
        noisy, noise = add_gaussian(
            clipped.sum(coins),
            sigma=settings.multiplier * settings.clip,
            l2_sensitivity=settings.clip,
            relation=ADD_REMOVE_RECORD if owners is None else ADD_REMOVE_CLIENT,
            prg=prg,
        )
        pieces = torch.split(
            (noisy / (settings.sample_rate * units)).to(x.device),
            [p.numel() for p in weights.values()],
        )
        for (name, value), piece in zip(weights.items(), pieces, strict=True):
            speed[name].mul_(settings.momentum).add_(piece.view_as(value))
            value.sub_(speed[name], alpha=settings.rate)  # the model's own memory
    sampled = Poisson(event=noise, rate=settings.sample_rate, is_hidden=True)
    return Repeated(event=sampled, count=settings.steps)


class _Clipped:
    """Sums of clipped gradients; on a GPU one batch size is recorded and smaller ones padded."""

    def __init__(
        self, model: nn.Module, x: Tensor, labels: Tensor, settings: DpSgd, whose: Tensor
    ) -> None:
        self.weights = {name: p.detach() for name, p in model.named_parameters()}
        self._x, self._labels, self._clip = x, labels, settings.clip * (1 - 2.0**-20)
        self._whose = whose
        self._slopes = vmap(grad(_loss_of(model)), in_dims=(None, 0, 0))
        spread = float(settings.sample_rate * (whose.bincount().double() ** 2).sum()) ** 0.5
        room = min(len(x), int(settings.sample_rate * len(x) + 8 * spread) + 8)
        self._rows = torch.zeros(room, dtype=torch.long, device=x.device)
        self._slots = torch.zeros(room, dtype=torch.long, device=x.device)
        # One slot more than there are rows: what pads the batch goes there and counts nothing.
        self._counts = torch.zeros(room + 1, dtype=torch.float64, device=x.device)
        self._replay = self._record() if x.is_cuda else None

    def sum(self, coins: Tensor) -> Tensor:
        """Return the sum over the owners drawn, each scaled to the clip if it is longer."""
        rows = torch.nonzero(coins[self._whose]).view(-1)
        slots = self._whose[rows].unique(return_inverse=True)[1]
        used = int(slots.max()) + 1 if len(slots) else 0
        if self._replay is None or len(rows) > len(self._rows):
            place = self._x.device
            ones = torch.ones(used, dtype=torch.float64, device=place)
            return self._add(rows.to(place), slots.to(place), ones).cpu()
        self._rows[: len(rows)].copy_(rows)
        self._slots.fill_(len(self._counts) - 1)
        self._slots[: len(rows)].copy_(slots)
        self._counts.zero_()
        self._counts[:used] = 1.0
        return self._replay().cpu()

    def _add(self, rows: Tensor, slots: Tensor, counts: Tensor) -> Tensor:
        # The fused kernels of attention cannot be vmapped: they would run record by record.
        with sdpa_kernel(SDPBackend.MATH):
            found = self._slopes(self.weights, self._x[rows], self._labels[rows])
        flat = torch.cat([found[name].flatten(1) for name in self.weights], dim=1).double()
        sums = flat.new_zeros(len(counts), flat.shape[1]).index_add_(0, slots, flat)
        lengths = sums.norm(dim=1).clamp_min(1e-300)
        return (counts * (self._clip / lengths).clamp_max(1.0)) @ sums

    def _record(self) -> Callable[[], Tensor] | None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._add(self._rows, self._slots, self._counts)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                total = self._add(self._rows, self._slots, self._counts)
        except RuntimeError:
            return None

        def replay() -> Tensor:
            graph.replay()
            return total

        return replay


def _loss_of(model: nn.Module) -> Callable[..., Tensor]:
    def loss(weights: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        scores = functional_call(model, weights, (row[None],))
        # A record's loss is the sum over its tokens, as in a batch with reduction "sum".
        return nn.functional.cross_entropy(scores, label[None], reduction="sum")

    return loss
