"""A sealed session of owner and user alone, on material that was dealt before."""

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace

import torch
from torch import Tensor

from tacit.errors import DataError, DisagreementError, FrameError
from tacit.llm.parties import Seats
from tacit.llm.sealed.bounds import FRAC_BITS
from tacit.llm.sealed.choosing import HOTTEST, NOISE_BOUND
from tacit.llm.sealed.dealing import NOISE, digest_plans, owner_file, planned
from tacit.llm.sealed.parties import SealedVault, read_by
from tacit.llm.sealed.passes import PASS_WORDS, Pass, told_words
from tacit.llm.sealed.program import PassOutcome
from tacit.llm.sealed.schedule import Slots, read_about, read_schedule
from tacit.llm.sealed.table import PassRunner, Table, sit_down
from tacit.mpc import EncodedInput, OpeningCache, Share
from tacit.mpc.material.offline import Material, open_material
from tacit.mpc.material.recorder import Next
from tacit.mpc.share import Spec
from tacit.party import Session

_NEXT = "llm/pass"
_IDENTITY = "setup/dealt"
_LEAVE = -1


class DealtTable:
    """One party's place in a session without a dealer: makes the passes of a schedule in turn.

    Guarantee: that of `sealed`. Every pass has masks of its own, and the file they come from is
    marked as used before the first of them is drawn: see `tacit.mpc.material.offline`.
    """

    def __init__(self, table: Table, material: Material, device: str = "cpu") -> None:
        """Agree with the other party on the two files, and mark mine as used.

        Raises:
            DataError: my file was made for another model, other bounds or another version.
            DisagreementError: the other party's file does not belong to mine.
        """
        self.session, self.seats = table.session, table.seats
        self.schedule, self._material = read_about(material.facts), material
        self.passing, self._plans = planned(table, self.schedule)
        if material.facts.plans != digest_plans(self._plans):
            raise DataError(
                f"{material.path} was dealt for a model with other bounds or sizes, or by another "
                "version of tacit; have it dealt anew"
            )
        text = f"{self.schedule!r} {material.facts.plans}"
        self.session.agree("material", hashlib.sha256(text.encode()).digest())
        material.begin()
        self._passes, self._at = self.schedule.passes(), 0
        self._slots, self._cache = Slots(), OpeningCache(weights_on=device)
        self._runner = PassRunner(self.session, device, self._cache, material=material)

    can_expect = False
    """Whether a pass may order the next one: all were ordered before."""

    def announce(self, step: Pass) -> None:
        """Tell the owner what the next pass reads, as the user."""
        self.session.send(self.seats.owner, _NEXT, torch.tensor([step.voids, step.pads]))

    def leave(self) -> None:
        """Tell the owner that no pass follows, as the user."""
        self.session.send(self.seats.owner, _NEXT, torch.tensor([_LEAVE, 0]))

    def hear(self) -> Pass | None:
        """Learn from the user what the next pass reads, or None that it leaves."""
        user = self.seats.user
        voids, pads = (int(one) for one in self.session.recv(user, _NEXT, (2,)))
        if voids == _LEAVE:
            return None
        if self._at == len(self._passes):
            raise FrameError(user, "asks for more passes than were dealt for")
        step = replace(self._passes[self._at], voids=voids, pads=pads)
        is_sound = 0 <= pads < step.rows and 0 <= step.read <= self._slots.read
        if not is_sound:
            raise FrameError(user, f"asks for a pass with {voids} void tokens and {pads} pads")
        return step

    def compute(
        self, step: Pass, inputs: Mapping[str, Tensor | EncodedInput], kept: Mapping[str, Share]
    ) -> PassOutcome[Share]:
        """Compute the next pass of the schedule, which takes up nothing but the dealer's noise."""
        number, self._at = self._at, self._at + 1
        plan = self._plans[number]
        self._slots.follow(step)
        self._cache.place(step.conversation, step.past)
        text = f"{number} {step!r}"
        self.session.agree("plan", hashlib.sha256(text.encode()).digest())
        return self._runner.compute(
            self.passing,
            step,
            Next(plan, number),
            inputs=inputs,
            kept={**kept, **self._noise(step, number)},
            told=told_words(self.passing.architecture, step, self._slots.places()),
            following=self._following(number),
        )

    def _following(self, number: int) -> Next | None:
        """Return the run behind a pass, if it is recorded as well."""
        later = number + 1
        if later == len(self._passes):
            return None
        step, plan = self._passes[later], self._plans[later]
        return Next(plan, later) if self._runner.takes(step, plan) else None

    def _noise(self, step: Pass, number: int) -> dict[str, Share]:
        """Return my share of the noise that the dealer drew."""
        if not step.is_scored or self.passing.reveal != "sample":
            return {}
        shape, bound = (1, self.passing.architecture.vocab), NOISE_BOUND / HOTTEST
        label = NOISE.format(number)
        if self.session.me == self.seats.owner:
            words = self._material.own(label).words(shape)
        else:
            words = self._material.read(label, shape[1]).reshape(shape)
        spec = Spec.of(shape=shape, frac_bits=FRAC_BITS, bound=bound)
        return {"noise": Share(words, spec)}


def meet_owner(table: Table, material: Material, *, device: str = "cpu") -> DealtTable:
    """Begin a session without a dealer, as the user."""
    schedule = read_about(material.facts)
    table.session.send(table.seats.owner, _IDENTITY, schedule.words(), phase="setup")
    return DealtTable(table, material, device)


def serve_dealt_owner(
    session: Session, vault: SealedVault, *, seats: Seats | None = None, device: str = "cpu"
) -> None:
    """Take part in a user's passes until it leaves, on material that was dealt before.

    Guarantee: as `serve_sealed_owner`. Whatever file the user has, the owner's own is used once.
    """
    seats = seats or Seats()
    table = sit_down(
        session,
        vault.architecture,
        reveal=vault.reveal,
        seats=seats,
        known=(vault.bounds, vault.gain),
        device=device,
    )
    vault.left_at = None
    user = seats.user
    try:
        with ExitStack() as stack:
            material = _find(session, vault, seats, stack)
            plans = read_about(material.facts).plan_bytes(vault.architecture)
            vault.account.settle(plans, user=user)
            dealt = DealtTable(table, material, device)
            while (step := dealt.hear()) is not None:
                vault.account.settle(plans + table.open_bytes(step), user=user)
                vault.account.spend(step.rows - step.pads, user=user)
                dealt.compute(step, read_by(vault, step), {})
    finally:
        vault.leave()


def _find(session: Session, vault: SealedVault, seats: Seats, stack: ExitStack) -> Material:
    """Open the file that belongs to what the user names."""
    user, folder = seats.user, vault.material
    words = session.recv(user, _IDENTITY, (PASS_WORDS,))
    schedule = read_schedule(words, sender=user, architecture=vault.architecture)
    if folder is None:
        raise FrameError(user, "has material in a file, and this owner keeps none")
    try:
        return stack.enter_context(open_material(owner_file(folder, schedule), me=seats.owner))
    except DataError as error:
        raise DisagreementError(
            user,
            "names material that was never dealt with this owner, or was used already, or is in "
            "use: masks are used once, so have new material dealt",
        ) from error
