"""Passes of one token on an accelerator: recorded once, and played for every token of a plan."""

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from tacit.llm.sealed.passes import Pass
from tacit.llm.sealed.program import Outcome, Passing
from tacit.mpc import OpeningCache, Plan, Share, Words
from tacit.mpc.material.offline import Material
from tacit.mpc.material.recorded_dealing import DealingRecorder
from tacit.mpc.material.recorder import Next, Recorder, can_record
from tacit.party import Session


class RecordedPasses:
    """One party's passes that are recorded: those that read a token and choose the next.

    A prompt is read once and is not worth a recording, nor is the pass that opens the weights.
    """

    def __init__(self, session: Session, device: str, *, material: Material | None = None) -> None:
        self._recorder = recorder_on(torch.device(device), session, material)
        self._dealing = dealing_on(torch.device(device), session)

    def takes(self, step: Pass, plan: Plan) -> bool:
        """Tell whether a pass is recorded."""
        return self._recorder is not None and _is_worth(step, plan)

    def deal(self, step: Pass, plan: Plan, *, run: int, cache: OpeningCache) -> bool:
        """Deal for a pass, as the dealer; False if such a pass is not recorded."""
        dealing = self._dealing
        if dealing is None or not (_is_worth(step, plan) and dealing.takes(plan, cache)):
            return False
        dealing.deal(plan, run=run, cache=cache)
        return True

    def compute(
        self,
        passing: Passing,
        step: Pass,
        now: Next,
        *,
        inputs: Mapping[str, Tensor | Words],
        cache: OpeningCache,
        told: Mapping[str, Tensor],
        following: Next | None,
    ) -> Outcome[Share]:
        """Compute a pass as the owner or the user.

        Args:
            passing: the model.
            step: the pass.
            now: its run.
            inputs: what I bring in.
            cache: weights, keys and values that are open under masks.
            told: the public words of the pass.
            following: the next run, if it is agreed on.
        """
        assert self._recorder is not None  # noqa: S101 - `takes` has said so
        outcome = self._recorder.compute(
            now,
            lambda ops: passing.run(ops, step),
            inputs=inputs,
            told=told,
            cache=cache,
            following=following,
        )
        # Keys and values are numbers, never bits or masked openings: shares.
        found = cast("Outcome[Share]", outcome)
        shown, strange = (
            None if one is None else one.clone() for one in (found.shown, found.strange)
        )
        keys, values = ([_own(one) for one in some] for some in (found.keys, found.values))
        return replace(found, keys=keys, values=values, shown=shown, strange=strange)

    def drop(self, run: int) -> bool:
        """Forget the material of a run that will not be made; False if none was fetched."""
        return self._recorder is not None and self._recorder.drop(run)


def recorder_on(
    device: torch.device, session: Session, material: Material | None
) -> Recorder | None:
    """Make what records passes on a device; a processor gains nothing by it."""
    return Recorder(session, device, material=material) if device.type == "cuda" else None


def dealing_on(device: torch.device, session: Session) -> DealingRecorder | None:
    """Make what records dealing on a device."""
    return DealingRecorder(session, device) if device.type == "cuda" else None


def _is_worth(step: Pass, plan: Plan) -> bool:
    return step.rows == 1 and step.is_scored and can_record(plan)


def _own(share: Share) -> Share:
    """Copy a share out of memory that the next pass writes to."""
    return Share(share.words.to("cpu", copy=True), share.spec)
