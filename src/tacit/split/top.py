"""The label owner's side: finish the model, work out the loss, send the gradient back."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError, DataError, DisagreementError
from tacit.party import Session
from tacit.ring import KEY_BYTES, Prg
from tacit.split.checkpoint import arrays_of, gather, keep_key, restore
from tacit.split.codec import Codec, is_finite, make_codec
from tacit.split.defend import blur_gradient, hide_labels, label_events
from tacit.split.exchange import (
    OnReturned,
    Returned,
    common_step,
    introduce,
    name_part,
    receive_bytes,
    refuse,
    send_bytes,
    share_order,
)
from tacit.split.selection import Support
from tacit.split.spec import SplitSpec
from tacit.split.stepping import (
    Score,
    Scored,
    Stepper,
    TrainingStep,
    make_optimiser,
    make_scorer,
    steps,
    steps_per_epoch,
)
from tacit.vault import Arrays, Checkpoint

TELL_S = 2.0
"""Seconds between two epochs of which is told how they went."""


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What one pass over the rows gave: the loss, the share of rows that were right, the bytes."""

    loss: float
    accuracy: float
    bytes_so_far: int


@dataclass(frozen=True, eq=False)
class OwnFeatures:
    """Columns of the label owner's own: a bottom, whose cut layer stays here, and their rows."""

    bottom: nn.Module
    rows: Tensor

    def cut(self, chosen: Tensor | slice) -> Tensor:
        """Return the cut layer of some rows."""
        rows = self.rows[chosen if isinstance(chosen, slice) else chosen.to(self.rows.device)]
        h: Tensor = self.bottom(rows)
        return h


class TopTrainer:
    """Trains the label owner's top model in step with the feature owners.

    Args:
        session: our end of the job.
        spec: the same for everyone.
        top: takes the owners' cut layers, side by side, as (rows, sum of widths); the label
            owner's own, if it has features, last.
        labels: one class per row.
        widths: of the cut layers that `top` takes, by owner.
        folder: where checkpoints are, if there are any.
        on_gradient: is shown every gradient that goes out, as it arrives, for an audit.
        own: the label owner's own columns, if it has any.

    Guarantee: none beyond the defences' claims; the feature owners receive gradients, which
    depend on the labels.
    Cost: as for `BottomTrainer`.
    """

    def __init__(
        self,
        session: Session,
        spec: SplitSpec,
        top: nn.Module,
        labels: Tensor,
        *,
        widths: Mapping[str, int],
        folder: Path | None = None,
        on_gradient: OnReturned | None = None,
        own: OwnFeatures | None = None,
    ) -> None:
        _check_labels(labels, spec.classes)
        _check_own(own, spec, labels)
        self.session, self.spec, self.top, self.labels = session, spec, top, labels
        self.widths = dict(widths)
        self.codecs: dict[str, Codec] = {
            owner: make_codec(spec.split.compress, widths[owner]) for owner in spec.feature_owners
        }
        self.epochs: list[Epoch] = []
        self.start = 0
        self._kept = None if folder is None else Checkpoint(folder)
        self._on_gradient = on_gradient
        self._own = own
        self._module = top if own is None else nn.ModuleList([top, own.bottom])
        self._optimiser = make_optimiser(self._module, spec.train, rate=spec.train.top_rate)
        self._stepper = Stepper(self._optimiser)
        self._scorer = make_scorer(
            top,
            spec.defences,
            class_weights=spec.train.class_weights,
            sent=len(spec.feature_owners),
        )
        self._device = next((p.device for p in top.parameters()), torch.device("cpu"))
        self._is_noisy = any(one.kind.startswith("gradient-") for one in spec.defences)
        self._key, self._order_key = os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)
        self._tally = torch.zeros(3, dtype=torch.float64)  # loss, right, rows of this epoch
        self._tell_s = 0.0

    def run(self) -> list[Epoch]:
        """Train from the last common checkpoint, or from the start; return every epoch's words."""
        session, spec = self.session, self.spec
        announced = introduce(session, spec, rows=len(self.labels), width=0)
        for owner, width in announced.items():
            if width != self.widths[owner]:
                raise DisagreementError(
                    owner,
                    f"its cut layer has {width} values, the top model takes {self.widths[owner]}; "
                    "cut the same model at the same layer",
                )
        self.start = start = common_step(session, self._kept.steps() if self._kept else ())
        if start and self._kept is not None:
            self._resume(self._kept.load(start))
        order = share_order(session, spec, self._order_key)
        targets = self.labels
        if label_events(spec.defences):
            # Randomised once: if this is another attempt, as in the first.
            prg = Prg(keep_key(self._kept, os.urandom(KEY_BYTES)))
            targets = hide_labels(spec.defences, targets, spec.classes, prg)
        self._module.train()
        total = steps_per_epoch(len(self.labels), spec.train) * spec.train.epochs
        with session.progress.stage("train", total) as advance:
            for step in steps(len(self.labels), spec.train, order=order, start=start):
                self._take(step, targets)
                if (step.number + 1) % steps_per_epoch(len(self.labels), spec.train) == 0:
                    self._close_epoch()
                if step.is_pause:
                    self._save(step.number + 1)
                advance(step.number + 1)
        return self.epochs

    def _take(self, step: TrainingStep, targets: Tensor) -> None:
        """Work through a batch as its parts come in, and step once."""
        self._optimiser.zero_grad(set_to_none=True)
        # All that needs no cut layer is made while the first one travels.
        classes = [targets[rows].to(self._device) for rows in step.parts]
        expected = [self._scorer.expect(y, len(y) / step.rows) for y in classes]
        scored = [self._answer(step, number, score) for number, score in enumerate(expected)]
        for y, found in zip(classes, scored, strict=True):  # while the gradients travel
            found.finish()
            loss = float(nn.functional.cross_entropy(found.logits, y))
            right = float((found.logits.argmax(1) == y).sum())
            self._tally += torch.tensor([loss * len(y), right, float(len(y))])
        self._stepper.step()

    def _answer(self, step: TrainingStep, number: int, score: Score) -> Scored:
        """Take in a part of a batch and send its gradients back."""
        name, rows = name_part(step.number, number), step.parts[number]
        cuts = []
        for owner in self.spec.feature_owners:
            seen, kept = receive_cut(
                self.session, self.codecs[owner], owner, f"forward/{name}", len(rows)
            )
            cuts.append((seen.to(self._device), kept))
        own = None if self._own is None else self._own.cut(rows).to(self._device)
        stays = () if own is None else (own.detach(),)
        scored = score([*(seen for seen, _ in cuts), *stays], step.number)
        for owner, gradient, (seen, kept) in zip(
            self.spec.feature_owners, scored.gradients[: len(cuts)], cuts, strict=True
        ):
            draws = f"{owner} backward/{step.number}.{number}"
            packed = self._send_back(owner, f"backward/{name}", gradient, kept, draws=draws)
            if self._on_gradient is not None:
                shown = Returned(
                    step=step.number,
                    share=len(rows) / step.rows,
                    rows=rows,
                    cut=seen.detach().cpu(),
                    gradient=self.codecs[owner].unpack_gradient(packed, kept, len(rows)),
                )
                self._on_gradient(owner, shown)
        return scored if own is None else _through(scored, own)

    def _send_back(
        self, owner: str, tag: str, gradient: Tensor, kept: Support, *, draws: str
    ) -> Tensor:
        """Send an owner its gradient, and return the bytes; `draws` names the random choices."""
        coins = None
        if self._is_noisy or self.codecs[owner].draws_backward:
            prg = Prg(self._key).fork(draws)
            gradient = blur_gradient(self.spec.defences, gradient, prg)
            coins = torch.Generator().manual_seed(int(prg.fork("choices").below(2**62, 1)))
        gradient = gradient.cpu()
        if not is_finite(gradient):
            raise DataError("the gradient is not finite; lower the learning rate")
        packed = self.codecs[owner].pack_gradient(gradient, kept, generator=coins)
        send_bytes(self.session, owner, tag, packed)
        return packed

    def _close_epoch(self) -> None:
        loss, right, rows = self._tally.tolist()
        self.epochs.append(
            Epoch(loss=loss / rows, accuracy=right / rows, bytes_so_far=online_bytes(self.session))
        )
        self._tally.zero_()
        done, total = len(self.epochs), self.spec.train.epochs
        now = monotonic()
        if now >= self._tell_s or done == total:
            self._tell_s, last = now + TELL_S, self.epochs[-1]
            words = f"epoch {done} of {total}: loss {last.loss:.3f}, accuracy {last.accuracy:.1%}"
            self.session.progress.tell(words, done, total)

    def _save(self, step: int) -> None:
        if self._kept is None:
            return
        tensors = gather(self._module, self._optimiser)
        tensors["torch"], tensors["tally"] = torch.get_rng_state(), self._tally
        rows = [[one.loss, one.accuracy, one.bytes_so_far] for one in self.epochs]
        tensors["epochs"] = torch.tensor(rows, dtype=torch.float64).view(-1, 3)
        tensors["order"] = torch.frombuffer(bytearray(self._order_key), dtype=torch.uint8)
        self._kept.save(step, arrays_of(tensors))

    def _resume(self, arrays: Arrays) -> None:
        tensors = {name: torch.from_numpy(one) for name, one in arrays.items()}
        restore(self._module, self._optimiser, tensors)
        torch.set_rng_state(tensors["torch"])
        self._tally, self._order_key = tensors["tally"], bytes(arrays["order"])
        self.epochs = [
            Epoch(loss=loss, accuracy=accuracy, bytes_so_far=int(count))
            for loss, accuracy, count in tensors["epochs"].tolist()
        ]


def _through(scored: Scored, own: Tensor) -> Scored:
    """Let the gradient at the label owner's own cut layer go on to the weights below it."""

    def finish() -> None:
        scored.finish()
        torch.autograd.backward(own, scored.gradients[-1])

    return replace(scored, finish=finish)


def receive_cut(
    session: Session, codec: Codec, owner: str, tag: str, rows: int, *, is_training: bool = True
) -> tuple[Tensor, Support]:
    """Receive and unpack one owner's cut layer; what cannot be read is that owner's failure."""
    size = codec.forward_bytes(rows, is_training=is_training)
    most = rows * codec.width * 8 + rows * 8
    data = receive_bytes(session, owner, tag, size=size, most=most)
    try:
        return codec.unpack(data, rows, is_training=is_training)
    except DataError as error:
        raise refuse(owner, tag, error) from error


def online_bytes(session: Session) -> int:
    """Return the payload that we sent and received so far, without the set-up."""
    cost = session.cost()
    return sum(one.payload_bytes for one in cost.traffic if one.phase == "online")


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.dim() != 1 or len(labels) < 1:
        raise DataError(f"wanted one class per row, at least one row, got {tuple(labels.shape)}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise DataError(f"wanted classes from 0 to {classes - 1}, got {low} to {high}")


def _check_own(own: OwnFeatures | None, spec: SplitSpec, labels: Tensor) -> None:
    if (own is not None) != spec.label_owner_has_features:
        raise ConfigError(
            f"label_owner_has_features is {spec.label_owner_has_features}; wanted columns of the "
            "label owner's own exactly then"
        )
    if own is not None and len(own.rows) != len(labels):
        raise DataError(f"wanted {len(labels)} rows of its own features, got {len(own.rows)}")
