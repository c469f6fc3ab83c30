"""A computing party's material without a dealer: both make it before the first step."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import TacitError
from tacit.mpc.contract import Roles
from tacit.mpc.material.dealer import viewed
from tacit.mpc.material.randomness import Need, OpeningMask, Parts
from tacit.mpc.material.supply import Supply
from tacit.mpc.plan import Plan
from tacit.mpc.protocols.two_party.makers import joint_rounds, make, set_up
from tacit.mpc.protocols.two_party.pair import Pair
from tacit.mpc.share import Mask
from tacit.party import Session
from tacit.party.cost import Round
from tacit.ring import Prg


@dataclass(frozen=True)
class OwnDraws:
    """The generator that nobody else can run, in the place of one that a dealer shares."""

    own: Prg
    run: int

    def stream(self, step: int, run: int | None = None) -> Prg:
        """Fork it for a step of this run, or of an earlier one."""
        return self.own.fork(f"joint {self.run if run is None else run}.{step}")

    def correction(self, step: int, count: int) -> Tensor:
        """Refuse: nobody sends corrections."""
        raise TacitError(f"there is no dealer who could send material for step {step}")


class JointSupply(Supply):
    """Hands out what the two parties have made with each other.

    Guarantee: every party follows the protocol; then each sees of the other's part ciphertexts
    under a key that it has not, and words and blocks that look uniform to it.
    Cost: offline, as `joint_rounds` declares.
    """

    def __init__(
        self, session: Session, plan: Plan, *, run: int, device: torch.device | str = "cpu"
    ) -> None:
        self._draws = OwnDraws(session.own, run)
        self._is_mine = session.me == plan.roles.first
        super().__init__(self._draws, plan, is_first=self._is_mine, device=device)
        self._pair = Pair(session, plan.roles, run=run, own=session.own.fork(f"pair {run}"))
        self._made: dict[int, tuple[Parts, ...]] = {}
        with session.progress.stage("prepare", len(plan.steps)) as advance:
            set_up(self._pair, (need for step in plan.steps for need in step.needs))
            for number in range(len(plan.steps)):
                with self._pair.naming_the_peer():
                    self._make(number)
                advance(number + 1)

    def _make(self, number: int) -> None:
        needs = self._plan.steps[number].needs
        if needs:
            drawn = super().draw(number)
            self._made[number] = tuple(
                self._placed(make(need, self._pair, parts, self._recall))
                for need, parts in zip(needs, drawn, strict=True)
            )

    def _recall(self, mask: Mask) -> Tensor | None:
        """Draw my share of a mask again, if I have one."""
        need = OpeningMask(mask.place, mask.shape, mask.holder)
        prg = self._draws.stream(mask.step, mask.run)
        parts = need.first(prg) if self._is_mine else need.second(prg)
        return viewed(parts[0] if parts else None, mask)

    def draw(self, number: int) -> tuple[Parts, ...]:
        """Return nothing: all was drawn when it was made."""
        return ()

    def take(self, number: int, drawn: tuple[Parts, ...] | None = None) -> tuple[Parts, ...]:
        """Return the material of a step, once."""
        if number not in self._made:
            raise TacitError(f"material of step {number} was used already; masks are used once")
        return self._made.pop(number)


@dataclass(frozen=True)
class Together:
    """Preprocessing by the two parties that will use it."""

    def rounds(self, needs: Iterable[Need], roles: Roles) -> tuple[Round, ...]:
        """Declare everything that they send for a plan."""
        return joint_rounds(needs, roles)

    def supply(
        self, session: Session, plan: Plan, *, run: int, device: torch.device
    ) -> JointSupply:
        """Make all of it, and hand it out."""
        return JointSupply(session, plan, run=run, device=device)
