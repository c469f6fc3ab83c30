"""One session model at a time on a processor: the library's, without what its zeros cost.

Padding is run through once for all rows, and of the label owner's matrix only the columns of kept
values are touched.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from split._stack import fresh
from split._tasks import Data
from split._train import Wanted, order_of
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from tacit.split import Halves


@dataclass(frozen=True)
class Recipe:
    """How it is trained: the feature owner's and the label owner's largest learning rates differ.

    The states are bounded. If the feature owner goes as fast as the label owner must, they run to
    the bound, and what is largest says nothing any more.
    """

    epochs: int = 10
    batch: int = 128
    bottom_rate: float = 5e-4
    top_rate: float = 6e-3
    dropout: float = 0.25


def train(data: Data, wanted: Wanted, recipe: Recipe, look: Callable[[Halves], None]) -> Halves:
    """Train one model with Adam, rates falling as a cosine; it is shown after every epoch."""
    whole = fresh(data, wanted)
    halves = Halves(
        bottom=_Bottom(whole.bottom, recipe.dropout),
        top=_Top(whole.top, wanted.compression.k),
        codec=whole.codec,
    )
    per_epoch = len(data.train_x) // recipe.batch
    total = recipe.epochs * per_epoch
    order = order_of(len(data.train_x), recipe.batch, total, wanted.seed).long()
    generator = torch.Generator().manual_seed(wanted.seed)
    optimisers = [
        torch.optim.Adam(part.parameters(), lr=rate, fused=True)
        for part, rate in ((halves.bottom, recipe.bottom_rate), (halves.top, recipe.top_rate))
    ]
    falls = [
        torch.optim.lr_scheduler.LambdaLR(
            one, lambda step: 0.5 + 0.5 * math.cos(math.pi * step / total)
        )
        for one in optimisers
    ]
    for number, rows in enumerate(order, start=1):
        halves.bottom.train()
        halves.top.train()
        h = halves.bottom(data.train_x[rows])
        sent = halves.codec.apply(h, is_training=True, generator=generator)
        loss = nn.functional.cross_entropy(halves.top(sent), data.train_y[rows])
        loss.backward()
        for optimiser, fall in zip(optimisers, falls, strict=True):
            optimiser.step()
            optimiser.zero_grad()
            fall.step()
        if number % per_epoch == 0:
            look(halves)
    return halves


def crowding(halves: Halves, x: Tensor) -> dict[str, float]:
    """Return how near the bound the kept states are, how far above the others, how many are used.

    With "none", which keeps all, of the largest four.
    """
    k = halves.codec.serving.count or 1
    k = 4 if k == halves.codec.width else k
    halves.bottom.eval()
    with torch.no_grad():
        ranked, places = halves.bottom(x).abs().sort(1, descending=True)
    return {
        "at_bound": float((ranked[:, :k] > 0.995).float().mean()),
        "gap": float((ranked[:, k - 1] - ranked[:, k]).mean()),
        "in_use": int(places[:, :k].unique().numel()),
    }


class _Bottom(nn.Module):
    """The library's recurrent bottom; rows are padded with 0 on the left."""

    def __init__(self, whole: nn.Module, dropout: float) -> None:
        super().__init__()
        self.thin = nn.Dropout(dropout)
        (self.embed,) = (part for part in whole.modules() if isinstance(part, nn.Embedding))
        (self.recur,) = (part for part in whole.modules() if isinstance(part, nn.GRU))

    def forward(self, items: Tensor) -> Tensor:
        """Return the state after the last item of every row."""
        length = items.shape[1]
        pads = (items != 0).long().argmax(1)  # a row of zeros has one item, which is 0
        pads = torch.where((items != 0).any(1), pads, length - 1)
        order = pads.argsort()
        items, pads = items[order], pads[order]
        idle, _ = self.recur(torch.zeros(1, length, self.embed.embedding_dim))
        idle = torch.cat([torch.zeros_like(idle[0, :1]), idle[0]])  # the state after so many pads
        places = (pads[:, None] + torch.arange(length)).clamp(max=length - 1)
        moved = pack_padded_sequence(
            self.thin(self.embed(items.gather(1, places))), length - pads, batch_first=True
        )
        _, last = self.recur(moved, idle[pads][None])
        return last[0][order.argsort()]


class _Top(nn.Module):
    """The library's linear top, with the matrix turned; k values of a row are not 0."""

    def __init__(self, whole: nn.Module, k: int | None) -> None:
        super().__init__()
        (head,) = (part for part in whole.modules() if isinstance(part, nn.Linear))
        self.columns = nn.Parameter(head.weight.detach().t().contiguous())
        self.bias, self.k = head.bias, k

    def forward(self, sent: Tensor) -> Tensor:
        """Return the logits."""
        if self.k is None or not self.training:
            return torch.addmm(self.bias, sent, self.columns)
        kept = sent.detach().abs().topk(self.k, dim=1).indices
        summed = nn.functional.embedding_bag(
            kept, self.columns, per_sample_weights=sent.gather(1, kept), mode="sum"
        )
        return summed + self.bias
