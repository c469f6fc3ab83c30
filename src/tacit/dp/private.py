"""`make_private`: DP-SGD for any torch model, optimiser and loader."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from tacit.dp.additive import add_gaussian, grid_sensitivity
from tacit.dp.calibrate import BudgetTarget, least_noise
from tacit.dp.check import delta_among, positive
from tacit.dp.codec import event_from_record, event_to_record
from tacit.dp.event import ADD_REMOVE_RECORD, Event, Gaussian, Poisson, Relation, Repeated
from tacit.dp.ghost import Ghost
from tacit.dp.ledger import Ledger, epsilon
from tacit.dp.mixing import checksum
from tacit.errors import ConfigError, DataError
from tacit.notebook import Lines, Shown
from tacit.result import Claim
from tacit.ring import Prg

_ACCOUNTANT = "fourier"  # our own: needs no extra
_ASSUMPTIONS = (
    "the number of records is public",
    "steps are counted from make_private on, and with a state that was loaded those before: what "
    "else was done with these records is not in this ε",
)
_TAKEN = "private_steps"  # in groups of the optimizer, whose state it goes with; on parameters

Cut = Callable[[list[int]], list[list[int]]]
"""Cuts the numbers of the records of a batch into parts, each of which fits the model at once."""


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    *,
    epsilon: float,
    delta: float,
    epochs: int,
    clip: float = 1.0,
    at_once: int | Cut | None = None,
    prg: Prg | None = None,
    relation: Relation = ADD_REMOVE_RECORD,
) -> "Private":
    """Make a training differentially private: noise for (ε, δ) is computed before the first batch.

    The training loop stays the user's own. It takes batches from ``private.loader`` and hands the
    loss of every record to ``private.step``, which stands for ``backward`` and ``optimizer.step``::

        private = make_private(model, optimizer, loader, epsilon=2, delta=1e-5, epochs=5)
        for _ in range(5):
            for x, y in private.loader:
                private.step(F.cross_entropy(model(x), y, reduction="none"))
        print(private.claim)

    A training that goes on after a break does so by ``private.state_dict()``, saved with the
    model's, and ``load_state_dict`` on what `make_private` returns for the same settings.

    Guarantee: for adding or removing one record, towards whoever sees the model after any number of
    steps, (ε, δ) as ``private.claim`` says; the number of records is taken as public. The code runs
    with its owner: against somebody who changes it there is no claim.
    Cost: `Ghost`'s, and 16 bytes of the generator per parameter and step.

    Args:
        model: layers of `tacit.dp.terms.RULES`, records first; others must be frozen.
        optimizer: of the model's parameters; any that takes one gradient per step.
        loader: its data set, batch size (the expected one) and collation are used; batches are
            drawn anew, every record by a coin of its own.
        epsilon: that the whole training may spend.
        delta: below one in the number of records.
        epochs: passes that are planned; the loader refuses more.
        clip: largest norm of a record's gradient.
        at_once: most records that the model is given at a time, or what cuts the numbers of those
            drawn into such parts; all of a batch if not given.
        prg: where batches and noise come from; the operating system if not given. One that stands
            where another stood (the same key, or a fork of the same name) repeats its noise.
        relation: what a record of the loader stands for: a record, all data of a client, or what a
            policy marks of either, where everything else is public.

    Raises:
        ConfigError: the model has layers without per-record gradients, ε cannot be met, or several
            processes train together.
    """
    _refuse_group()
    records, rate = _sizes(loader)
    delta_among(delta, records, relation.unit.split()[-1])
    if relation.neighbours != "add-remove":
        raise ConfigError(
            f"records are drawn by coins: wanted add-remove neighbours, got {relation}"
        )
    if epochs < 1:
        raise ConfigError(f"epochs must be at least 1, got {epochs}")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ConfigError("LBFGS asks for several gradients in a step; take another optimizer")
    steps = epochs * math.ceil(1 / rate)
    positive("clip", clip)

    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    _check_optimizer(optimizer, trained)
    numbers = sum(parameter.numel() for parameter in trained)

    def plan(multiplier: float) -> list[Event]:
        event = step_event(numbers, multiplier=multiplier, clip=clip, rate=rate, relation=relation)
        return [Repeated(event=event, count=steps)]

    multiplier = least_noise(
        plan, BudgetTarget(epsilon=epsilon, delta=delta, accountant=_ACCOUNTANT)
    )
    batches = PrivateLoader(
        loader, rate=rate, steps=steps, at_once=at_once, prg=prg or Prg.from_os()
    )
    return Private(
        Ghost(model), optimizer, batches, noise=(multiplier, clip), delta=delta, relation=relation
    )


def step_event(
    numbers: int,
    *,
    multiplier: float,
    clip: float,
    rate: float,
    relation: Relation = ADD_REMOVE_RECORD,
) -> Poisson:
    """Say what one step will do to a record, for a model of so many numbers."""
    sigma = multiplier * clip
    grown = grid_sensitivity(numbers, sigma=sigma, l2_sensitivity=clip)
    noise = Gaussian(sigma=sigma, l2_sensitivity=grown, relation=relation)
    return Poisson(event=noise, rate=rate, is_hidden=True)


@final
class PrivateLoader:
    """Batches in which every record stands by a coin of its own; a pass is ⌈1 / rate⌉ of them.

    ``divisor`` is what sums over a batch are divided by: rate times records if not given, and then
    the number of records is public.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        *,
        rate: float,
        steps: int,
        at_once: int | Cut | None,
        prg: Prg,
        divisor: float | None = None,
    ) -> None:
        if isinstance(at_once, int) and at_once < 1:
            raise ConfigError(f"at_once must be at least 1, got {at_once}")
        self.prg = prg
        self.rate = self.drawn_at = rate
        self.records = len(loader.dataset)  # type: ignore[arg-type]
        self.divisor = rate * self.records if divisor is None else divisor
        self.steps_left = steps
        self.expected: tuple[int, bool] | None = None
        """How many records the next `step` speaks for, and whether they complete a batch."""
        self.on_begin: Callable[[], None] = lambda: None
        self.on_empty: Callable[[], None] = lambda: None
        self._is_within = False  # a batch of which the loop has seen some parts
        self._pass: object = None
        self._loader = loader
        self._cut = at_once if callable(at_once) else _evenly(at_once or self.records)

    def __len__(self) -> int:
        return math.ceil(1 / self.rate)

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of one pass, in parts if they are larger than the model may take."""
        if self.steps_left == 0:
            raise ConfigError(
                "the planned epochs are over, and ε with them; plan more of them, or a larger ε, "
                "in a new make_private for a new model"
            )
        self._take()
        if self._is_within:
            raise ConfigError(
                "the last pass ended within a batch (at_once gives it in parts); end a pass where "
                "len(private.ledger) has grown"
            )
        self.on_begin()
        this = self._pass = object()
        self.drawn_at = self.rate  # a loop may change it for later passes
        count = min(len(self), self.steps_left)
        schedule = [self._parts() for _ in range(count)]
        parts = iter(self._collated([part for batch in schedule for part in batch]))
        for batch in schedule:
            if not batch:
                self.on_empty()  # an empty batch is a step of noise alone
            for number, part in enumerate(batch, start=1):
                self._is_within = number < len(batch)
                self.expected = (len(part), not self._is_within)
                yield next(parts)
                self._take()
                if self._pass is not this:
                    raise ConfigError("a later pass over private.loader has begun; go on with that")

    def _take(self) -> None:
        """Refuse a loop that leaves a batch out: which ones it does may depend on the records."""
        if self.expected is not None:
            raise ConfigError("private.step(losses) must be called once for every batch")

    def _parts(self) -> list[list[int]]:
        """Draw a batch and cut it into what the model may take at a time."""
        coins = self.prg.below(2**53, self.records) < round(self.rate * 2**53)
        drawn: list[int] = torch.nonzero(coins).view(-1).tolist()
        parts = self._cut(drawn)
        if sorted(one for part in parts for one in part) != drawn or not all(parts):
            raise ConfigError("at_once must cut a batch into parts that hold every record once")
        return parts

    def _collated(self, parts: list[list[int]]) -> DataLoader[Any]:
        given = self._loader
        return DataLoader(
            given.dataset,
            batch_sampler=parts,
            collate_fn=given.collate_fn,
            num_workers=given.num_workers,
            pin_memory=given.pin_memory,
            worker_init_fn=given.worker_init_fn,
            multiprocessing_context=given.multiprocessing_context,
        )


@final
class Private(Shown):
    """A training with a privacy budget; see `make_private`."""

    def __init__(
        self,
        ghost: Ghost,
        optimizer: Optimizer,
        loader: PrivateLoader,
        *,
        noise: tuple[float, float],
        delta: float,
        relation: Relation = ADD_REMOVE_RECORD,
    ) -> None:
        self.loader = loader
        self.ledger = Ledger()
        self.multiplier, self.clip = noise
        self._ghost = ghost
        self._optimizer = optimizer
        self._delta = delta
        self._relation = relation
        self._sum: dict[str, Tensor] = {}
        self._largest = 0.0  # clip that parts of this batch were clipped to
        self._is_stepping = False
        self._sums: list[int] = []
        self._begun = [_print_of(loader.prg)]
        loader.on_begin = self._begin
        loader.on_empty = self._finish_empty
        optimizer.register_step_pre_hook(self._refuse_others)

    @property
    def claim(self) -> Claim:
        """What the steps so far have spent, from the ledger."""
        found = epsilon(
            self.ledger,
            delta=self._delta,
            accountant=_ACCOUNTANT,
            population=self.loader.records,
        )
        return replace(found, assumptions=(*found.assumptions, *_ASSUMPTIONS))

    def state_dict(self) -> dict[str, Any]:
        """Return what was spent and what is left, to be saved with model and optimizer.

        Numbers and strings alone; no key, and nothing of a batch that is not complete.
        """
        events = [event_to_record(entry.event) for entry in self.ledger.entries]
        return {
            "settings": self._settings(),
            "events": [[event, len([*same])] for event, same in groupby(events)],
            "steps_left": self.loader.steps_left,
            "begun": list(self._begun),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state: its steps are in the ledger, and only the rest may be taken.

        The weights are as they are; load the model's and the optimizer's that were saved with it.

        Raises:
            ConfigError: a step was taken already, the settings are not those of the state, or the
                generator stands where it stood before.
            DataError: it is no state.
        """
        try:
            settings, begun = dict(state["settings"]), [str(one) for one in state["begun"]]
            events = [(event_from_record(event), int(n)) for event, n in state["events"]]
            left = int(state["steps_left"])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                "not a state of a private training: wanted what private.state_dict() returned"
            ) from error
        if len(self.ledger):
            raise ConfigError(
                "load the state before the first step: what was done since counts, too"
            )
        ours = self._settings()
        other = [
            f"{k} {settings.get(k)}, now {ours[k]}" for k in ours if settings.get(k) != ours[k]
        ]
        total = self.loader.steps_left
        if not other and left + sum(n for _, n in events) != total:
            other = [f"{left + sum(n for _, n in events)} steps, now {total}"]
        if other:
            raise ConfigError(
                f"the state was saved under other settings: {'; '.join(other)}; resume with those "
                "of the first make_private"
            )
        if self._begun[0] in begun:
            raise ConfigError(
                "prg stands where it stood at an earlier start, and would repeat noise that was "
                "used; leave it out, or fork it by another name for every start"
            )
        for event, count in events:
            for _ in range(count):
                self.ledger.record(event)
        self.loader.steps_left = left
        self._begun += begun
        self.adopt()

    def adopt(self) -> None:
        """Take the weights as they are now for what the next step begins with.

        For weights that something else than `step`, or another training, has changed and that
        depend on no record, or on none that is not counted elsewhere: an average, an earlier
        checkpoint.
        """
        # Not their versions: `p.data` and another process change weights and leave those.
        self._sums = [checksum(p) for p in self._ghost.parameters.values()]

    def _settings(self) -> dict[str, Any]:
        return {
            "multiplier": float(f"{self.multiplier:.9g}"),  # another machine rounds otherwise
            "clip": self.clip,
            "delta": self._delta,
            "rate": self.loader.rate,
            "records": self.loader.records,
            "relation": str(self._relation),
            "numbers": sum(p.numel() for p in self._ghost.parameters.values()),
        }

    def _shown(self) -> tuple[str, Lines]:
        done, spent = len(self.ledger), "nothing"
        if done:
            claim = self.claim
            spent = f"ε = {claim.epsilon:.3f} at δ = {claim.delta:g}, for {claim.relation}"
        return "Private training", [
            ("noise", f"{self.multiplier:.3f} × the clip of {self.clip:g}"),
            ("batches", f"{done} done, {self.loader.steps_left} left"),
            ("spent", spent),
        ]

    def step(self, losses: Tensor) -> None:
        """Train on a batch of the loader, given the loss of each of its records.

        Raises:
            ConfigError: the losses are not one per record, records are mixed, or the batch is not
                the loader's last one.
        """
        if self.loader.expected is None:
            raise ConfigError("take a batch from private.loader before every private.step")
        records, is_last = self.loader.expected
        if losses.shape != (records,):
            raise ConfigError(
                f"wanted {records} losses, one per record (reduction='none', and a sum or mean "
                f"over a record's own tokens), got the shape {tuple(losses.shape)}"
            )
        if is_last or not self._sum:  # of the parts of a batch the first and the last
            self._check_others()
        found = self._ghost.clipped_sum(losses, self.clip)
        self._largest = max(self._largest, self.clip)
        for name, value in found.items():
            self._sum[name] = self._sum[name] + value if name in self._sum else value
        self.loader.expected = None
        if is_last:
            self._finish()

    def remove(self) -> None:
        """Take the hooks off the model, when the training is over."""
        self._ghost.remove()

    def _begin(self) -> None:
        """Note the weights before the first rows are shown: until then any may be loaded.

        What another training of this process has trained is refused, unless `adopt` was called.
        """
        if self._sums:
            return
        for parameter in self._ghost.parameters.values():
            done, begun = getattr(parameter, _TAKEN, (0, self._begun[0]))
            if begun not in self._begun:
                raise ConfigError(
                    f"the model has taken {done} private steps that this training does not count: "
                    "on the same records its ε would be too low; load what that training's "
                    "private.state_dict() says, or take a new model; if these are other records, "
                    "or you add up both ledgers, say so by private.adopt()"
                )
        self.adopt()

    def _finish_empty(self) -> None:
        self._check_others()
        self._finish()

    def _finish(self) -> None:
        """Add noise to the sum of the batch, write the event down, and let the optimiser step."""
        parameters = self._ghost.parameters
        flat = torch.cat(
            [
                self._sum.get(name, torch.zeros_like(p)).detach().flatten().double().cpu()
                for name, p in parameters.items()
            ]
        )
        clip = self._largest or self.clip  # a loop may lower it from one part to the next
        self._sum, self._largest = {}, 0.0
        noisy, event = add_gaussian(
            flat,
            sigma=self.multiplier * clip,
            l2_sensitivity=clip,
            relation=self._relation,
            prg=self.loader.prg,
        )
        # Written down before anybody can see the model that comes out.
        self.ledger.record(Poisson(event=event, rate=self.loader.drawn_at, is_hidden=True))
        self.loader.steps_left -= 1
        mean = noisy.div_(self.loader.divisor)
        pieces = torch.split(mean, [p.numel() for p in parameters.values()])
        for parameter, piece in zip(parameters.values(), pieces, strict=True):
            parameter.grad = piece.view_as(parameter).to(parameter)
        self._is_stepping = True
        try:
            self._optimizer.step()
        finally:
            self._is_stepping = False
        self._optimizer.zero_grad(set_to_none=True)
        for group in self._optimizer.param_groups:
            group[_TAKEN] = len(self.ledger), self._begun[0]
        for parameter in parameters.values():
            setattr(parameter, _TAKEN, (len(self.ledger), self._begun[0]))
        self.adopt()

    def _check_others(self) -> None:
        """Refuse what somebody else did to the optimiser, to its gradients or to the weights."""
        _refuse_group()
        for group in self._optimizer.param_groups:
            done, begun = group.get(_TAKEN, (0, self._begun[0]))
            if done > len(self.ledger) or begun not in self._begun:
                raise ConfigError(
                    f"the optimizer has taken {done} private steps that this training does not "
                    "count, so that its ε would be too low; load the state that was saved with it, "
                    "private.load_state_dict(…), or take a new optimizer for other records"
                )
        now = [checksum(p) for p in self._ghost.parameters.values()]
        if self._sums and now != self._sums:
            raise ConfigError(
                "weights have changed since the last private step, or the first batch: another "
                "optimizer would train them without noise; if what changed them depends on no "
                "record, say so by private.adopt()"
            )
        ours = {id(parameter) for parameter in self._ghost.parameters.values()}
        held = (p for group in self._optimizer.param_groups for p in group["params"])
        if any(p.grad is not None and id(p) not in ours for p in held):
            raise ConfigError(
                "the optimizer holds a parameter with a gradient that make_private did not see: it "
                "was added or unfrozen afterwards, and would be trained without noise"
            )
        if {id(p) for p in self._ghost.trained()} != ours:
            raise ConfigError(
                "what the model trains is not what it was at make_private: a layer was replaced, "
                "added, frozen or unfrozen since, and noise is for the parameters of then; do that "
                "before make_private"
            )

    def _refuse_others(self, *_: object) -> None:
        """Keep a loop from stepping with gradients that were neither clipped nor noised."""
        if not self._is_stepping:
            raise ConfigError(
                "this optimizer belongs to a private training: call private.step(losses) in place "
                "of loss.backward() and optimizer.step()"
            )


def _print_of(prg: Prg) -> str:
    """Return what tells a generator and its place from others, and betrays neither."""
    return f"{prg.fork('begun with make_private').bytes(16).hex()} at {prg.position}"


def _refuse_group() -> None:
    """Refuse processes that train one model together (DistributedDataParallel)."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return
    if (size := torch.distributed.get_world_size()) > 1:
        raise ConfigError(
            f"this is one of {size} processes of torch.distributed: each would draw batches and "
            "noise of its own, average nothing, and claim ε for itself alone; train in one process"
        )


def _evenly(size: int) -> Cut:
    return lambda drawn: [drawn[at : at + size] for at in range(0, len(drawn), size)]


def _sizes(loader: DataLoader[Any]) -> tuple[int, float]:
    if isinstance(loader.dataset, IterableDataset):
        raise ConfigError(
            "records are drawn by coins: the data set must have a length, not a stream"
        )
    records = len(loader.dataset)  # type: ignore[arg-type]
    if loader.batch_size is None or records < 1:
        raise ConfigError("the loader must have records and a batch_size, the expected one")
    if not isinstance(loader.sampler, SequentialSampler | RandomSampler):
        raise ConfigError(
            f"records are drawn by coins of their own, not by {type(loader.sampler).__name__}; "
            "give a loader of the records themselves (torch.utils.data.Subset, say)"
        )
    return records, min(1.0, loader.batch_size / records)


def _check_optimizer(optimizer: Optimizer, trained: list[nn.Parameter]) -> None:
    held = {id(p) for group in optimizer.param_groups for p in group["params"] if p.requires_grad}
    wanted = {id(p) for p in trained}
    if held != wanted:
        raise ConfigError(
            f"the optimizer must hold exactly what the model trains, {len(wanted)} parameters, "
            f"got {len(held)}, of which {len(held & wanted)} are the model's"
        )
