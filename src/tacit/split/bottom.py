"""The feature owner's side: run the bottom, send the cut layer, apply the gradient that returns."""

import copy
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.errors import DataError
from tacit.party import Session
from tacit.ring import KEY_BYTES, Prg
from tacit.split.checkpoint import arrays_of, gather, restore
from tacit.split.codec import Codec, make_codec
from tacit.split.defend import blur_activations
from tacit.split.exchange import (
    common_step,
    cut_leak,
    gradient_leak,
    introduce,
    name_part,
    receive_bytes,
    refuse,
    send_bytes,
    share_order,
)
from tacit.split.models import cut_shape
from tacit.split.selection import Draws, Support
from tacit.split.spec import SplitSpec
from tacit.split.stepping import Stepper, TrainingStep, make_optimiser, steps, steps_per_epoch
from tacit.vault import Arrays, Checkpoint


@dataclass(frozen=True, eq=False)
class _Part:
    """What of a micro-batch can be made ready before the weights are."""

    name: str  # in tags
    rows: Tensor
    count: int
    inputs: Tensor
    prg: Prg | None
    coins: torch.Generator | None
    draws: Draws | None


@dataclass(eq=False)
class _Sent:
    """A micro-batch whose gradient has not come back yet."""

    part: _Part
    h: Tensor
    kept: Support


@dataclass(eq=False)
class _Batch:
    """A batch under way: the weights it was computed with, its rows, and its parts."""

    weights: list[Tensor]
    rows: int
    parts: list[_Sent] = field(default_factory=list)


class BottomTrainer:
    """Trains one feature owner's bottom model in step with the label owner.

    Guarantee: none; the label owner receives what the compressor keeps of the cut layer, and this
    party the gradient at it.
    Cost: per batch `Codec.forward_bytes` out and `Codec.backward_bytes` in, one round for
    every `in_flight` batches.
    """

    def __init__(
        self,
        session: Session,
        spec: SplitSpec,
        bottom: nn.Module,
        features: Tensor,
        *,
        folder: Path | None = None,
    ) -> None:
        if len(features) < 1:
            raise DataError("wanted at least one row to train on, got none")
        self.session, self.spec, self.bottom, self.features = session, spec, bottom, features
        self.width = cut_shape(bottom, features)[0]
        self.codec: Codec = make_codec(spec.split.compress, self.width)
        self._kept = None if folder is None else Checkpoint(folder)
        self._optimiser = make_optimiser(bottom, spec.train)
        self._stepper = Stepper(self._optimiser)
        self._weights = learned(bottom)
        self._replicas = [(bottom, self._weights)]
        self._key = os.urandom(KEY_BYTES)
        self.start = 0
        self.widths: dict[str, int] = {}
        self._values_sent = 0
        self._is_noisy = any(one.kind == "activation-noise" for one in spec.defences)
        self._memory: Tensor | None = None
        if spec.split.compress.feedback:
            self._memory = torch.zeros(len(features), self.width)

    def run(self) -> None:
        """Train from the last common checkpoint, or from the start, to the end."""
        session, spec = self.session, self.spec
        self.widths = introduce(session, spec, rows=len(self.features), width=self.width)
        self.start = start = common_step(session, self._kept.steps() if self._kept else ())
        if start and self._kept is not None:
            self._resume(self._kept.load(start))
        order = share_order(session, spec, None)
        under_way: deque[_Batch] = deque()
        self.bottom.train()
        replicas = replicate(self.bottom, spec.train.in_flight)
        if len(replicas) > 1:
            self._replicas = [(one, learned(one)) for one in replicas]
        total = steps_per_epoch(len(self.features), spec.train) * spec.train.epochs
        with session.progress.stage("train", total) as advance:
            todo = steps(len(self.features), spec.train, order=order, start=start)
            ahead = (
                (one, [self._part(one.number, n, rows) for n, rows in enumerate(one.parts)])
                for one in todo
            )
            following = next(ahead, None)
            while following is not None:
                step, parts = following
                under_way.append(self._launch(step, parts))
                following = next(ahead, None)  # while the cut layer travels
                room = 0 if step.is_pause else spec.train.in_flight - 1
                while len(under_way) > room:
                    self._settle(under_way.popleft())
                if step.is_pause:
                    self._save(step.number + 1)
                advance(step.number + 1)
        me, elements = session.me, self._values_sent
        seen = cut_leak(spec.label_owner, me, "training", elements)
        session.ledger.record(seen, gradient_leak(spec, me, elements))

    def _part(self, step: int, number: int, rows: Tensor) -> _Part:
        device, name, count = self.features.device, name_part(step, number), len(rows)
        inputs = self.features.index_select(0, rows.to(device))
        if not (self._is_noisy or self.codec.draws_forward):
            return _Part(name, rows, count, inputs, None, None, None)
        prg = Prg(self._key).fork(f"forward/{step}.{number}")
        # For choices that hide nothing, at the place where they are made.
        coins = torch.Generator(device=device)
        coins.manual_seed(int.from_bytes(prg.fork("choices").bytes(7), "little"))
        draws = self.codec.draw(count, coins, device)
        return _Part(name, rows, count, inputs, prg, coins, draws)

    def _launch(self, step: TrainingStep, parts: Sequence[_Part]) -> _Batch:
        """Send a batch's cut layer, part by part."""
        # The replica's last batch was settled: no more than `in_flight` are under way.
        module, weights = self._replicas[step.number % len(self._replicas)]
        if module is not self.bottom:
            with torch.no_grad():
                torch._foreach_copy_(weights, self._weights)
        batch = _Batch(weights, step.rows)
        for part in parts:
            h: Tensor = module(part.inputs)
            batch.parts.append(_Sent(part, h, self._send(part, h)))
        return batch

    def _send(self, part: _Part, h: Tensor) -> Support:
        blurred, rows = h.detach(), part.rows
        if part.prg is not None:
            blurred = blur_activations(self.spec.defences, blurred, part.prg)
        if self._memory is not None:
            # Error feedback (Seide et al. 2014): what could not be sent of a row is added to it.
            blurred = blurred + self._memory[rows].to(h.device)
        data, kept = self.codec.pack(
            blurred, is_training=True, generator=part.coins, draws=part.draws
        )
        if self._memory is not None:
            seen, _ = self.codec.unpack(data, part.count, is_training=True)
            self._memory[rows] = blurred.cpu() - seen
        send_bytes(self.session, self.spec.label_owner, f"forward/{part.name}", data)
        self._values_sent += part.count * (self.codec.training.count or self.width)
        return kept

    def _settle(self, batch: _Batch) -> None:
        """Take the gradient of a batch that was sent and apply it to the newest weights."""
        for one in batch.weights:
            one.grad = None
        for sent in batch.parts:
            outputs, gradients = [sent.h], [self._receive(sent)]
            if self.codec.l1_weight:
                penalty = sent.part.count / batch.rows * self.codec.penalty(sent.h)
                outputs, gradients = [*outputs, penalty], [*gradients, torch.ones_like(penalty)]
            torch.autograd.backward(outputs, gradients)
        if batch.weights is not self._weights:
            for ours, theirs in zip(self._weights, batch.weights, strict=True):
                ours.grad, theirs.grad = theirs.grad, None
        self._stepper.step()

    def _receive(self, sent: _Sent) -> Tensor:
        rows, peer, tag = sent.part.count, self.spec.label_owner, f"backward/{sent.part.name}"
        size = self.codec.backward_bytes(rows)
        data = receive_bytes(self.session, peer, tag, size=size, most=size)
        try:
            return self.codec.unpack_gradient(data, sent.kept, rows).to(sent.h.device)
        except DataError as error:
            raise refuse(peer, tag, error) from error

    def _save(self, step: int) -> None:
        if self._kept is None:
            return
        tensors = gather(self.bottom, self._optimiser)
        tensors["torch"] = torch.get_rng_state()
        if self._memory is not None:
            tensors["memory"] = self._memory
        self._kept.save(step, arrays_of(tensors))

    def _resume(self, arrays: Arrays) -> None:
        tensors = {name: torch.from_numpy(one) for name, one in arrays.items()}
        restore(self.bottom, self._optimiser, tensors)
        torch.set_rng_state(tensors["torch"])
        if self._memory is not None:
            self._memory = tensors["memory"]


def replicate(module: nn.Module, count: int) -> list[nn.Module]:
    """Return modules for `count` batches under way: with one, the module itself.

    Copies have weights of their own, so that a batch keeps those it was computed with while the
    module's change. Running statistics are the module's own.
    """
    if count == 1:
        return [module]
    copies = [copy.deepcopy(module) for _ in range(count)]
    for one in copies:
        for ours, theirs in zip(one.modules(), module.modules(), strict=True):
            ours._buffers = theirs._buffers
    return copies


def learned(module: nn.Module) -> list[Tensor]:
    """Return the weights that training changes."""
    return [p for p in module.parameters() if p.requires_grad]
