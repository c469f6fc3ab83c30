"""Recorded runs of one party: material of the next run is fetched while one is played."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from tacit.errors import PartyError
from tacit.mpc import tables
from tacit.mpc.boundary import Input, Resume
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Channel, Prepared, takes_role
from tacit.mpc.material.offline import Material
from tacit.mpc.material.recording import CudaTape, Key, LaunchTape, Recording, Vectors
from tacit.mpc.plan import Plan
from tacit.mpc.run import supplied
from tacit.mpc.secret_ops import Given, SecretOps, made
from tacit.party import Session

R = TypeVar("R")


@dataclass(frozen=True)
class Next:
    """A run that all have agreed on."""

    plan: Plan
    run: int


class Recorder:
    """Makes one party's runs on an accelerator, recorded by plan; keeps one recording.

    Args:
        session: my end of the job.
        device: where shares live and are computed on.
        material: my file of what was dealt before, instead of a dealer in the session.
        tape: makes what records launches.

    Guarantee: that of the plan; what is sent is what `compute` sends, message by message.
    """

    def __init__(
        self,
        session: Session,
        device: torch.device,
        *,
        material: Material | None = None,
        tape: Callable[[torch.device], LaunchTape] = CudaTape,
    ) -> None:
        self._session, self._device, self._file = session, device, material
        self._tape = tape(device)
        self._recording: Recording[Any] | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tacit-fetch")
        self._fetching: tuple[int, Future[Vectors]] | None = None

    def compute(
        self,
        now: Next,
        program: Callable[[SecretOps], R],
        *,
        inputs: Mapping[str, Given],
        told: Mapping[str, Tensor],
        cache: OpeningCache,
        following: Next | None = None,
    ) -> R:
        """Make a run that all have agreed on, as P0 or P1.

        The result is that of the program, with shares and opened values in memory that the next
        run writes to.

        Args:
            now: the run.
            program: what was planned.
            inputs: my inputs, by name.
            told: the words of every `PublicInput` of the plan.
            cache: what earlier runs have opened under masks.
            following: the run behind it, if all have agreed on that: its material is fetched.
        """
        cache.bind(self._session)
        if self._recording is not None and self._recording.plan is now.plan:
            recording = self._recording
        else:
            self._recording = None  # its memory first
            recording = Recording(
                self._session, now.plan, cache, device=self._device, tape=self._tape
            )
        material = self._fetched(now)
        recording.load(material, self._given(now, inputs, told, cache))
        if following is not None and can_record(following.plan):
            self._begin(following)
        try:
            with self._session.progress.stage("compute", len(now.plan.steps)) as advance:
                result = recording.play(now.run, program)
                advance(len(now.plan.steps))
        except PartyError as error:
            raise self._session.as_heard(error) from error
        self._recording = recording
        cache.grow(now.plan.grown, recording.grown)
        return cast("R", result)

    def drop(self, run: int) -> bool:
        """Forget the material of a run that will not be made; False if none was fetched."""
        if self._fetching is None or self._fetching[0] != run:
            return False
        self._fetching[1].result()
        self._fetching = None
        return True

    def _begin(self, run: Next) -> None:
        self._fetching = run.run, self._pool.submit(self._fetch, run)

    def _fetched(self, now: Next) -> Vectors:
        """Wait for the material of a run."""
        if self._fetching is None or self._fetching[0] != now.run:
            self._begin(now)
        assert self._fetching is not None  # noqa: S101 - it was begun
        material = self._fetching[1].result()
        self._fetching = None
        return material

    def _fetch(self, run: Next) -> Vectors:
        """Draw and receive all material of a run, and bring it to the device."""
        parts: dict[Key, Tensor] = {}
        on = torch.device("cpu")
        with supplied(
            self._session, run.plan, run=run.run, material=self._file, device=on
        ) as supply:
            for number, step in enumerate(run.plan.steps):
                for need, drawn in enumerate(supply.take(number) if step.needs else ()):
                    parts |= {(number, need, at): part for at, part in enumerate(drawn)}
        vectors = Vectors.of(parts, self._device)
        return replace(vectors, words=tables.laid_out(vectors.words, self._device))

    def _given(
        self,
        now: Next,
        inputs: Mapping[str, Given],
        told: Mapping[str, Tensor],
        cache: OpeningCache,
    ) -> Vectors:
        """Share my inputs, and lay them out with what is told."""
        roles, parts = now.plan.roles, dict[Key, Tensor]()
        for number, step in enumerate(now.plan.steps):
            if not isinstance(step.kernel, Input) or not _is_drawn(step.kernel, self._session, now):
                continue
            mine = inputs.get(step.kernel.name) if step.kernel.owner == self._session.me else None
            channel = Channel(self._session, roles, run=now.run, step=number)
            clear = step.kernel.clear(channel, made(mine, []))
            parts["input", number] = step.kernel.run(channel, clear).words
            if clear is not None:
                parts["clear", number] = clear
        parts |= {("told", name): words for name, words in told.items()}
        rows = {spec.mask.shape[spec.mask.dim] for _, spec in now.plan.grown}
        for count in rows:  # all alike
            parts["places",] = cache.places(count)
        return Vectors.of(parts, self._device)


def can_record(plan: Plan) -> bool:
    """Tell whether all that differs between runs of a plan gets a fixed place."""
    others = any(
        isinstance(step.kernel, Resume) or takes_role(step.kernel, Prepared) for step in plan.steps
    )
    return not (plan.kept_openings or plan.handed or others)


def _is_drawn(step: Input, session: Session, now: Next) -> bool:
    """Tell whether I draw my share of an input, or make it: P1 is sent that of others' inputs."""
    roles = now.plan.roles
    return step.owner in roles.computing or session.me == roles.first
