"""Filling placeholders by a vote: models of shards of owners, clipped, sampled, paid for."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, final

import torch
from annotated_types import Ge
from torch import Tensor, nn

from tacit.dp.book import BudgetSpentError
from tacit.dp.check import budget as checked
from tacit.dp.event import REPLACE_CLIENT_MARKS, Pure
from tacit.dp.ledger import Ledger
from tacit.errors import ConfigError, DataError
from tacit.nn import Adapted, add_adapters
from tacit.ring import Prg
from tacit.spec import Positive
from tacit.text.corpus import Marked
from tacit.text.tune import Course, tune
from tacit.vault import entries, pack_entries

_GRID = 1 << 16
"""Steps of a score between 0 and 1: sums over voters are sums of integers, and exact."""
_DEEPEST = 30.0  # nothing is less likely than e^−30 times the likeliest, before the vote
_UNIT = 1 << 1074  # one over the smallest double: every weight is a whole number of them
MARGIN = 2.0**-40
"""Added to ε of every token: more than exp and one division lose in double precision."""


@dataclass(frozen=True, kw_only=True)
class Ballot:
    """How votes are counted.

    Attributes:
        voters: models, each of another shard of the owners.
        clip: how far a voter may move a score away from the public model's.
        temperature: by which scores are divided: a token costs ε = 4 · clip / (voters ·
            temperature).
    """

    voters: Annotated[int, Ge(2)] = 16
    clip: Positive = 3.0
    temperature: Positive = 1.0

    def __post_init__(self) -> None:
        if self.voters < 2 or not (0 < self.clip <= 20 and 0.1 <= self.temperature <= 10):
            raise ConfigError(
                "a ballot has 2 voters or more, a clip up to 20 and a temperature from 0.1 to 10, "
                f"got {self}"
            )
        _ = self.event  # an ε that means nothing is refused

    @property
    def event(self) -> Pure:
        """What one token tells about the marks of one owner.

        It is the exponential mechanism (McSherry and Talwar 2007) on the mean of clipped scores: a
        voter's score moves by 2 · clip at most, the mean by 2 · clip / voters, the log of a
        probability by twice that over the temperature: numerator and denominator.
        """
        return Pure(
            epsilon=4 * self.clip / (self.voters * self.temperature) + MARGIN,
            relation=REPLACE_CLIENT_MARKS,
            mechanism=f"clipped vote of {self.voters} models",
        )


def count_votes(public: Tensor, voters: Tensor, ballot: Ballot) -> list[int]:
    """Return the weight of every option: it is drawn with weight / sum, exactly.

    Weights are whole numbers, as doubles that are rounded on the way give their inputs away by the
    outcomes that cannot occur (Mironov 2012).

    Guarantee: if one row of `voters` is another, no quotient of the probabilities of an option
    exceeds e^ε of ``ballot.event``.

    Args:
        public: (options,) log-probabilities of a model that has seen no marks.
        voters: (voters, options) of the others.
        ballot: how they are counted.
    """
    if voters.shape != (ballot.voters, len(public)):
        raise ConfigError(
            f"wanted {ballot.voters} voters on {len(public)} options, got {tuple(voters.shape)}"
        )
    known = public.double().cpu().nan_to_num(nan=-math.inf)
    known = (known - known.max().clamp_min(-1e6)).clamp_min(-_DEEPEST)
    moved = voters.double().cpu() - (known + public.double().cpu().max().clamp_min(-1e6))
    moved = moved.nan_to_num(nan=0.0, posinf=ballot.clip, neginf=-ballot.clip)
    most = math.floor(ballot.clip * _GRID)
    steps = (moved * _GRID).round().clamp(-most, most).long().sum(0).tolist()
    scores = [
        (x + s / (_GRID * ballot.voters)) / ballot.temperature
        for x, s in zip(known.tolist(), steps, strict=True)
    ]
    top = max(scores)
    # No score lies more than (30 + 2 · clip) / temperature <= 700 below: exp is never 0.
    ratios = [math.exp(score - top).as_integer_ratio() for score in scores]
    return [above * (_UNIT // below) for above, below in ratios]  # nothing is rounded


def draw(weights: Sequence[int], prg: Prg) -> int:
    """Draw an index with probability weight / sum, exactly if the stream is uniform."""
    total = sum(weights)
    size = (total.bit_length() + 7) // 8
    spare = 8 * size - total.bit_length()
    while (mark := int.from_bytes(prg.bytes(size)) >> spare) >= total:
        pass
    for index, weight in enumerate(weights):
        mark -= weight
        if mark < 0:
            return index
    raise AssertionError("a mark below the sum lies in one of the weights")


def shard_of(owner: str, shards: int) -> int:
    """Return an owner's shard: a function of its name alone, whoever else there is."""
    return int.from_bytes(hashlib.sha256(owner.encode()).digest()[:8]) % shards


Adapter = dict[str, tuple[Tensor, Tensor]]
"""The two thin matrices of every adapted layer, by its name."""


def train_voters(
    writer: nn.Module,
    corpus: Marked,
    course: Course,
    *,
    shards: int,
    length: int,
    rank: int,
    layers: Sequence[str],
    prg: Prg,
) -> list[Adapter]:
    """Tune an adapter beside the writer for every shard of owners, on their texts as they are.

    The last that is returned is public: tuned on redacted texts with random numbers, it is where
    all others start. A shard without owners votes as it does.

    Guarantee: no guarantee for any other adapter: whoever holds one may know what its shard holds.
    """
    parts: list[set[str]] = [set() for _ in range(shards)]
    for owner in corpus.owners:
        parts[shard_of(owner, shards)].add(owner)
    learning = add_adapters(writer, rank=rank, seed=0, only=layers)
    usual = corpus.redactions(length=length, stand_ins=prg.fork("stand-ins"))
    tune(learning, usual, course, prg=prg.fork("public"))
    fresh = {name: w.detach().clone() for name, w in _thin(learning)}
    public = _adapter(learning)
    found = []
    for number, owners in enumerate(parts):
        with torch.no_grad():
            for name, weight in _thin(learning):
                weight.copy_(fresh[name])
        if owners:
            units = corpus.originals(length=length, by_owner=False, among=owners)
            tune(learning, units, course, prg=prg.fork(f"voter {number}"))
        found.append(_adapter(learning))
    return [*found, public]


def _adapter(module: nn.Module) -> Adapter:
    return {
        name: (layer.down.weight.detach().clone(), layer.up.weight.detach().clone())
        for name, layer in module.named_modules()
        if isinstance(layer, Adapted)
    }


def _thin(module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
    return [(name, p) for name, p in module.named_parameters() if p.requires_grad]


class StackedAdapters(nn.Module):
    """A linear layer beside as many adapters as there are rows in front: (models, …, width)."""

    def __init__(self, base: nn.Linear, downs: Tensor, ups: Tensor) -> None:
        super().__init__()
        self.base = base
        self.register_buffer("downs", downs)  # (models, rank, inputs)
        self.register_buffer("ups", ups)  # (models, outputs, rank)

    def forward(self, x: Tensor) -> Tensor:
        """Give every model its own adapter."""
        downs, ups = self.get_buffer("downs"), self.get_buffer("ups")
        flat = x.flatten(1, -2)
        thin = torch.bmm(torch.bmm(flat, downs.mT), ups.mT)
        out: Tensor = self.base(x) + thin.view(*x.shape[:-1], thin.shape[-1])
        return out


def stack_voters(
    writer: nn.Module, adapters: Sequence[Adapter], *, layers: Sequence[str]
) -> nn.Module:
    """Return one module that runs every adapter at once: the voters, and the public one last."""
    ranks = {down.shape[0] for one in adapters for down, _ in one.values()}
    if len(ranks) != 1:
        raise ConfigError(f"wanted voters of one rank, got {sorted(ranks)}")
    learning = add_adapters(writer, rank=ranks.pop(), seed=0, only=layers)
    for name, layer in list(learning.named_modules()):
        if isinstance(layer, Adapted):
            downs, ups = [one[name][0] for one in adapters], [one[name][1] for one in adapters]
            place = layer.base.weight.device
            both = torch.stack(downs).to(place), torch.stack(ups).to(place)
            learning.set_submodule(name, StackedAdapters(layer.base, *both))
    return learning.requires_grad_(False)


_KIND = "budget"
UNSPENT = pack_entries({}, _KIND)
"""The file of a budget of which nothing is spent."""


@final
class Budget:
    """An ε that is never exceeded: pure events are added up, and one that would exceed it refused.

    Guarantee: all that is said under a budget is (ε, 0)-private with ε = ``most``. With a file, it
    is so for all processes that use the file, one after the other or at the same time; whoever may
    remove or copy the file may start anew.

    Args:
        most: the ε of all events together.
        path: where they are counted; in memory if not given.
        within: a wider budget, of which everything is spent as well.
    """

    def __init__(
        self, most: float, *, path: Path | None = None, within: "Budget | None" = None
    ) -> None:
        self.most = checked("most", most)
        self.ledger = Ledger()
        self._path = path
        self._within = within
        self._counts: dict[str, int] = {}
        if path is not None:
            self._counts = self._locked(None)

    @property
    def spent(self) -> float:
        """Return what is gone: the sum over events."""
        return _sum(self._counts)

    @property
    def left(self) -> float:
        """Return what is left, here and in what this is part of."""
        here = self.most - self.spent
        return here if self._within is None else min(here, self._within.left)

    def spend(self, event: Pure) -> None:
        """Count an event, before what it is about is shown to anybody.

        Raises:
            BudgetSpentError: it is more than is left; nothing is counted.
            InputError: the file cannot be read or written.
        """
        self._refuse(_sum(self._counts), event)
        if self._within is not None:
            self._within.spend(event)
        if self._path is not None:
            self._counts = self._locked(event)
        else:
            _add(self._counts, event)
        self.ledger.record(event)

    def _refuse(self, spent: float, event: Pure) -> None:
        if spent + event.epsilon > self.most:
            raise BudgetSpentError(
                f"ε = {event.epsilon:.4g} is wanted, and {max(self.most - spent, 0):.4g} is left "
                f"of the budget of {self.most:g}; nothing more is said about what is marked"
            )

    def _locked(self, event: Pure | None) -> dict[str, int]:
        """Read the file and, if there is an event, add it, while nobody else does."""
        path = self._path or Path()
        with entries(path, _KIND) as counts:
            for key, count in counts.items():
                if not _is_epsilon(key) or type(count) is not int or count < 1:
                    raise DataError(f"{path} is damaged: what was spent is not known")
            if event is not None:
                self._refuse(_sum(counts), event)
                _add(counts, event)
        return counts


def _add(counts: dict[str, int], event: Pure) -> None:
    counts[event.epsilon.hex()] = counts.get(event.epsilon.hex(), 0) + 1


def _sum(counts: dict[str, int]) -> float:
    return math.fsum(float.fromhex(epsilon) * count for epsilon, count in counts.items())


def _is_epsilon(key: str) -> bool:
    try:
        return 0 < float.fromhex(key) < math.inf
    except (ValueError, OverflowError):
        return False
