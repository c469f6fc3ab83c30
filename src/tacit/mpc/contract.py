"""The contract of a protocol: kernels that declare what they send, and then send exactly that."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from tacit.errors import ConfigError
from tacit.mpc import narrow
from tacit.mpc.material.randomness import Need, Parts
from tacit.mpc.share import AnyShare, AnySpec, OpeningSpec, Party
from tacit.party import Session
from tacit.party.cost import Round
from tacit.result import Leak, Phase
from tacit.ring import Prg

Seat = Literal["first", "second", "dealer"]
"""A party by its role, as `Roles` calls it."""


@dataclass(frozen=True)
class Roles:
    """Which party of the job is P0, P1 and the dealer (or helper) of the protocol.

    Under a protocol without a dealer there is none: its name is empty.
    """

    first: str
    second: str
    dealer: str = ""

    def __post_init__(self) -> None:
        names = (self.first, self.second, self.dealer)
        if len(set(names)) != len(names):
            raise ConfigError(
                f"the two computing parties and the dealer must be three, got {', '.join(names)}: "
                "a dealer who also computes could read the inputs"
            )

    @property
    def computing(self) -> tuple[str, str]:
        """Return P0 and P1."""
        return self.first, self.second

    def role(self, name: str) -> Party | None:
        """Return which of the two computing parties that is; None for anyone else."""
        if name not in self.computing:
            return None
        return "first" if name == self.first else "second"


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What one use of a kernel gives, needs from the dealer, sends and shows to whom.

    ``rounds`` are online; ``offline`` are those of the computing parties that wait for no query;
    ``posted`` is sent, online, but not waited for before the next of the rounds. What is sent
    ``is_checked`` by whoever receives it, if no later check has to.
    """

    out: AnySpec | None
    needs: tuple[Need, ...] = ()
    rounds: tuple[Round, ...] = ()
    offline: tuple[Round, ...] = ()
    posted: Round = ()
    leaks: tuple[Leak, ...] = ()
    is_checked: bool = False


class Channel:
    """The messages and generators of one step of one run, as one party sees them."""

    def __init__(
        self,
        session: Session,
        roles: Roles,
        *,
        run: int,
        step: int,
        device: torch.device | str = "cpu",
        state: object = None,
        told: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.state = state
        """What the protocol keeps of a run, from step to step; see `Boundary.begin`."""
        self.told = told or {}
        self.session = session
        self.device = torch.device(device)
        self.roles = roles
        self.step = step
        self._run, self._name = run, f"{run}.{step}"
        self._sent: Counter[str] = Counter()
        self._received: Counter[str] = Counter()

    @property
    def me(self) -> str:
        """Return my name."""
        return self.session.me

    @property
    def name(self) -> str:
        """Return the numbers of the run and the step."""
        return self._name

    def at(self, step: int) -> "Channel":
        """Return the messages and generators of another step of the run."""
        roles, device = self.roles, self.device
        return Channel(
            self.session,
            roles,
            run=self._run,
            step=step,
            device=device,
            state=self.state,
            told=self.told,
        )

    @property
    def is_first(self) -> bool:
        """Tell whether I am P0, who adds public constants."""
        return self.session.me == self.roles.first

    @property
    def other(self) -> str:
        """Return the other computing party."""
        return self.roles.second if self.is_first else self.roles.first

    def shared(self, peer: str) -> Prg:
        """Return a generator that this peer and I share, fresh for this step."""
        return self.session.shared(peer).fork(f"step {self._name}")

    def send(self, to: str, values: Tensor, *, phase: Phase = "online") -> None:
        """Send words that belong to this step."""
        self.session.send(
            to,
            message_tag(self._run, self.step, self._sent[to]),
            in_host_memory(values),
            phase=phase,
        )
        self._sent[to] += 1

    def recv(
        self, sender: str, shape: tuple[int, ...], *, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        """Receive the sender's next message of this step."""
        tag = message_tag(self._run, self.step, self._received[sender])
        self._received[sender] += 1
        words = self.session.recv(sender, tag, shape, dtype=dtype)
        # Nothing here waits for the copy, nor for what an accelerator does before it.
        return words.to(self.device, non_blocking=True)

    def send_early(self, to: str, values: Tensor) -> None:
        """Send, before the step is reached, what waits for no query; once per step and receiver."""
        self.session.send(to, self._early, in_host_memory(values), phase="offline")

    def recv_early(self, sender: str, shape: tuple[int, ...], *, dtype: torch.dtype) -> Tensor:
        """Receive what was sent before the step was reached."""
        return self.session.recv(sender, self._early, shape, dtype=dtype).to(self.device)

    def post(self, to: str, values: Tensor) -> None:
        """Send what is waited for later, behind other steps; once per step and receiver."""
        self.session.send(to, posted_tag(self._run, self.step), in_host_memory(values))

    def collect(self, sender: str, shape: tuple[int, ...], *, dtype: torch.dtype) -> Tensor:
        """Receive what was posted."""
        words = self.session.recv(sender, posted_tag(self._run, self.step), shape, dtype=dtype)
        return words.to(self.device, non_blocking=True)

    @property
    def _early(self) -> str:
        # A channel of its own: it may be overtaken, and comes before what earlier steps send.
        return f"early.{self._name}/0"

    def exchange_low(self, mine: Tensor, bits: int) -> Tensor:
        """Add up the lowest bits of both parties' words, sending only the bytes they fill.

        Returns:
            Words whose lowest ``bits`` bits are those of the sum; the rest is meaningless.
        """
        size = narrow.size_for(bits)
        shape, dtype = narrow.wire(mine.numel(), size)
        self.send(self.other, narrow.cut(mine.reshape(-1), size))
        theirs = self.recv(self.other, shape, dtype=dtype)
        return narrow.uncut(theirs, size).add_(mine.reshape(-1)).view(mine.shape)

    def post_low(self, mine: Tensor, bits: int) -> Callable[[], Tensor]:
        """Begin what `exchange_low` does, and return what waits for the other party's words."""
        size = narrow.size_for(bits)
        shape, dtype = narrow.wire(mine.numel(), size)
        self.post(self.other, narrow.cut(mine.reshape(-1), size))

        def wait() -> Tensor:
            theirs = self.collect(self.other, shape, dtype=dtype)
            return narrow.uncut(theirs, size).add_(mine.reshape(-1)).view(mine.shape)

        return wait

    def exchange_bits(self, mine: Tensor, count: int) -> Tensor:
        """Send packed bits, ``count`` in each row of words, and get the other party's.

        Of a few bits per row no more is sent than there is; the rest of such words is zero.
        """
        self.send_bits(mine, count)
        return self.recv_bits(mine.shape, count)

    def send_bits(self, mine: Tensor, count: int) -> None:
        """Send my side of `exchange_bits`; what it does not depend on can be computed meanwhile."""
        is_whole = narrow.bits_size(mine.numel(), count) == narrow.WORD_BYTES * mine.numel()
        self.send(self.other, mine if is_whole else narrow.cut_bits(mine, count))

    def recv_bits(self, shape: torch.Size, count: int) -> Tensor:
        """Get the other side of `exchange_bits`."""
        size = narrow.bits_size(shape.numel(), count)
        if size == narrow.WORD_BYTES * shape.numel():
            return self.recv(self.other, tuple(shape))
        octets = self.recv(self.other, (size,), dtype=torch.uint8)
        return narrow.uncut_bits(octets, shape, count)

    def exchange(self, mine: Tensor) -> Tensor:
        """Send my words to the other computing party and get its words of the same shape."""
        self.send(self.other, mine)
        return self.recv(self.other, tuple(mine.shape))


def message_tag(run: int, step: int, number: int) -> str:
    """Return the tag of a message of a step, counted from 0 for each receiver."""
    return f"run/{run}.{step}.{number}"


def posted_tag(run: int, step: int) -> str:
    """Return the tag of what a step posts: a channel of its own, as other messages overtake it."""
    return f"posted.{run}.{step}/0"


def in_host_memory(values: Tensor) -> Tensor:
    """Bring words of an accelerator through page-locked memory, which is faster than around it."""
    if values.device.type != "cuda":
        return values
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values)


class Declares(Protocol):
    """Whatever stands in a plan: a kernel, or what moves values in and out.

    It is a frozen dataclass of public numbers and names, so that plans are compared by its repr.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out, what is needed from the dealer and what will be sent."""
        ...


class Acts(Declares, Protocol):
    """What does something between P0 and P1, whatever comes of it."""

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> object:
        """Do it as P0 or P1."""
        ...


class Hearing(Declares, Protocol):
    """A step by which something comes in that is open under a mask."""

    def opening(self, step: int, roles: Roles) -> OpeningSpec:
        """Describe what comes in, if this is that step of a plan."""
        ...

    @property
    def run(self) -> Callable[..., Any]:
        """Do it as P0 or P1, out of what `SecretOps.hear` gives each kind of step."""
        ...


class Kernel(Acts, Protocol):
    """One operation of one protocol; its fields are the public parameters."""

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Compute my share of the result as P0 or P1."""
        ...


@runtime_checkable
class Begun(Declares, Protocol):
    """A kernel whose first message can be sent a while before it is waited for."""

    def begin(
        self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare
    ) -> Callable[[], AnyShare]:
        """Post the first message; what comes back waits for it, and does the rest."""
        ...


@runtime_checkable
class Attended(Protocol):
    """A kernel in which a third party (helper, outside owner or receiver) takes part."""

    def attend(self, channel: Channel, *operands: AnySpec) -> Tensor | None:
        """Do the third party's part of the step, and return what is opened to it."""
        ...


@runtime_checkable
class Tells(Protocol):
    """A step whose mask the dealer tells to parties who do not compute."""

    def tell(
        self, roles: Roles, streams: tuple[Prg, Prg], *operands: AnySpec
    ) -> Iterator[tuple[str, Tensor]]:
        """Give what each is told, by the generators that P0 and P1 draw this step from."""
        ...


@runtime_checkable
class Prepared(Protocol):
    """A kernel whose random draws are worth making before its step is reached."""

    def prepare(self, channel: Channel, *operands: AnySpec) -> Parts:
        """Draw, as P0 or P1, what depends on no input; `run` gets it after the dealer's parts."""
        ...


@runtime_checkable
class HandsOver(Protocol):
    """A kernel that begins with P1 handing its share over, under a mask of the dealer's."""

    def handed(self) -> Kernel:
        """Return the same kernel for an operand that is handed over when it is shared."""
        ...

    def hand(self, channel: Channel, drawn: tuple[Parts, ...], operand: AnyShare) -> Parts:
        """Hand the operand over, as P1, or take it, as P0, with what I draw for the step.

        `run` gets the result after the dealer's parts, if this was done before.
        """
        ...


def takes_role(kernel: object, role: type) -> bool:
    """Tell whether a kernel takes a role, such as `Attended`; a type is asked once."""
    key = (type(kernel), role)
    if key not in _ROLES:
        _ROLES[key] = isinstance(kernel, role)
    return _ROLES[key]


_ROLES: dict[tuple[type, type], bool] = {}
