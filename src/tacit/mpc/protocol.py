"""What a protocol is: its name and promises, its kernels, and what it does at the boundary."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.mpc.boundary import Input, Open
from tacit.mpc.contract import Acts, Roles, Seat
from tacit.mpc.material.randomness import Need
from tacit.mpc.material.supply import Supply
from tacit.mpc.plan import Plan
from tacit.mpc.share import AnyShare, Share
from tacit.party import Session
from tacit.party.cost import Round
from tacit.result import Claim

TWO_SERVERS = (
    "every party follows the protocol (semi-honest); a malicious party can make the result wrong "
    "or learn more than the declared output, without being noticed",
    "the two computing parties do not pool what they see",
    "the dealer does not pool what it knows with a computing party",
    "results are rounded up or down by the computing parties' own random words: one that gets the "
    "same output again and again can work out digits below its last one",
    "AES-128 in counter mode is a pseudo-random generator; the links are private (TLS 1.3)",
)
"""What protocols of two servers who follow them, and a dealer, assume."""


@dataclass(frozen=True)
class Boundary:
    """What is done where secrets enter a computation, are opened under masks, and leave it.

    This is the boundary of parties who follow the protocol: shares alone, and nothing is checked;
    a protocol that wants more has its own. It is written in the verbs of whoever interprets a
    program, ``ops``, so that a plan and its runs cannot differ. (Their type is any, as an
    interpreter has a protocol, and so a boundary.)
    """

    @property
    def check(self) -> Acts | None:
        """Return the step that proves all messages since the last one; None for no such step."""
        return None

    def begin(self, session: Session, roles: Roles) -> object:
        """Return what P0 or P1 keeps of a run from step to step, as kernels find it."""
        return None

    def input(self, ops: Any, step: Input) -> Any:
        """Bring in an input."""
        return ops.shared(step)

    def entered(self, ops: Any, value: Any) -> Any:
        """Make what kernels compute on of a value, which may be an input as it came in."""
        return value

    @property
    def opening(self) -> type[OpenMasked]:
        """Return the kind of step that opens values under masks."""
        return OpenMasked

    def open(self, ops: Any, step: Open, value: Any) -> Tensor | None:
        """Reveal a value; return it where it is revealed to me."""
        found: Tensor | None = ops.reveal(step, value)
        return found

    def resumed(self, name: str, share: Share, kept: AnyShare | None) -> Share:
        """Make what kernels compute on of a share that was kept from an earlier run."""
        return share

    def refuse(self, what: str) -> None:
        """Refuse what is done to shares alone, if a protocol has more than shares."""


class Preprocessing(Protocol):
    """How P0 and P1 make correlated randomness with each other, where there is no dealer."""

    def rounds(self, needs: Iterable[Need], roles: Roles) -> tuple[Round, ...]:
        """Declare everything that they send for a plan, offline.

        Raises:
            InputError: one of the needs can be made by a dealer only.
        """
        ...

    def supply(self, session: Session, plan: Plan, *, run: int, device: torch.device) -> Supply:
        """Make all of it with the other party, and hand it out step by step."""
        ...


@dataclass(frozen=True, kw_only=True)
class MpcProtocol:
    """A protocol: its name, what it promises, what it needs of its third party, its kernels.

    ``kernels`` maps an operation to a function from public parameters to a kernel; ``families``
    names protocols that are used instead for some kinds of functions, see `tacit.mpc.registry`;
    ``options`` makes the protocol that is meant by further words behind the name, if any may be.
    """

    name: str
    claims: tuple[Claim, ...]
    shows_to: frozenset[Seat]
    """Who is shown values, such as the inputs of functions, on the way; no default, as each has to
    say. A plan in which a kernel declares that it shows anyone else something is refused."""
    helper_is_online: bool
    # Constructors of kernels have different parameters; a few give what kernels are chosen by.
    kernels: Mapping[str, Callable[..., Any]]
    families: Mapping[str, "MpcProtocol"] = field(default_factory=dict)
    boundary: Boundary = Boundary()
    preprocessing: Preprocessing | None = None
    options: Callable[[Sequence[str]], "MpcProtocol"] | None = None

    @property
    def is_checked(self) -> bool:
        """Tell whether every message is checked before anything is revealed."""
        return self.boundary.check is not None

    @property
    def has_dealer(self) -> bool:
        """Tell whether a third party makes correlated randomness."""
        return self.preprocessing is None

    def parts(self) -> tuple["MpcProtocol", ...]:
        """List the protocol and those of families."""
        return self, *self.families.values()
