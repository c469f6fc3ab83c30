"""Operations on one party's shares, along the plan that all have agreed on."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from tacit.errors import DisagreementError, InputError
from tacit.mpc.arithmetic.coded import Codes, OpenCoded
from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.mpc.arithmetic.weights import EncodedInput, OpenWeight
from tacit.mpc.boundary import Input, Open, Resume
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Acts, Begun, Channel, Declares, HandsOver, Hearing, Kernel
from tacit.mpc.interpreter import Memo
from tacit.mpc.material.randomness import Parts
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.plan import Plan
from tacit.mpc.registry import find_protocol
from tacit.mpc.share import AnyShare, AnySpec, MaskedOpening, Party, Share, Spec, View
from tacit.party import Session
from tacit.ring import Prg

Given = Tensor | Codes | EncodedInput | Callable[[tuple[Tensor, ...]], Tensor]
"""An input, its codes or words, or what makes it of all that was opened to its owner so far."""


class Handout(Protocol):
    """Hands out the material of each step, once."""

    def take(self, number: int) -> tuple[Parts, ...]:
        """Return the material of a step."""
        ...

    def stream(self, number: int) -> Prg:
        """Return the generator of a step that draws its masks itself."""
        ...

    def peek(self, number: int) -> tuple[Parts, ...]:
        """Return what I draw for a later step; it stays there."""
        ...


class SecretOps(ProtocolOps[AnyShare]):
    """Interpret a program on this party's shares, exactly along the agreed plan."""

    def __init__(
        self,
        session: Session,
        plan: Plan,
        *,
        run: int,
        inputs: Mapping[str, Given],
        advance: Callable[[int], None],
        supply: Handout,
        device: torch.device,
        kept: Mapping[str, AnyShare],
        cache: OpeningCache,
        told: Mapping[str, Tensor],
    ) -> None:
        self.protocol, self.roles = find_protocol(plan.protocol), plan.roles
        self.frac_bits = plan.frac_bits
        self.notes, self.shown = Memo(), []
        self._kept = kept
        self._told = {name: words.to(device) for name, words in told.items()}
        self._device = device
        self._session = session
        self._plan = plan
        self._run = run
        self._inputs = inputs
        self._advance = advance
        self._supply = supply
        self._cache = cache
        self.kept_openings: dict[str, MaskedOpening] = {}
        self.grown: dict[str, MaskedOpening] = {}
        self._clear: Memo[Tensor] = Memo()
        self._state = self.protocol.boundary.begin(session, plan.roles)
        self._step = 0
        self._early = frozenset(at for _, at in plan.handed)
        self._handed: dict[int, Parts] = {}

    def spec(self, value: AnyShare) -> AnySpec:
        """Return the public facts about a share."""
        return value.spec

    def apply(self, kernel: Kernel, *operands: AnyShare) -> AnyShare:
        """Run one kernel."""
        operands = self.entered(*operands)
        if self._step in self._early:
            kernel = self.early(kernel, operands)
        channel = self._next(kernel, operands)
        material = self._supply.take(channel.step)
        if channel.step in self._early:
            material += (self._handed.pop(channel.step),)
        return kernel.run(channel, material, *operands)

    def begin(self, kernel: Begun, *operands: AnyShare) -> Callable[[], AnyShare]:
        """Post the first message of a kernel."""
        channel = self._next(kernel, operands)
        return kernel.begin(channel, self._supply.take(channel.step), *operands)

    @property
    def position(self) -> int:
        """Return the number of the next step."""
        return self._step

    def act(self, step: Acts, *operands: AnyShare) -> Any:
        """Do a step that is no kernel, and return what it gives."""
        channel = self._next(step, operands)
        return step.run(channel, self._supply.take(channel.step), *operands)

    def hear(self, step: Hearing) -> AnyShare:
        """Take what comes in, or send it, if it is mine."""
        if isinstance(step, OpenWeight):
            return self._open_weight(step)
        channel = self._next(step, ())
        material = self._supply.take(channel.step)
        if isinstance(step, OpenCoded):
            return step.run(channel, material, self._inputs.get(step.name))
        heard: AnyShare = step.run(channel, material)
        return heard

    def shared(self, step: Input) -> AnyShare:
        """Take my share of an input."""
        channel = self._next(step, ())
        share, clear = self.entering(step, channel)
        self.note_input(share, step)
        self.note_entry(share, channel.step)
        if clear is not None:
            self._clear.put(share, "clear", clear)
        self._hand_over(channel.step, share)
        return share

    def entering(self, step: Input, channel: Channel) -> tuple[Share, Tensor | None]:
        """Give my share of an input, and its words if it is mine."""
        mine = self._inputs.get(step.name) if step.owner == channel.me else None
        clear = step.clear(channel, made(mine, self.shown))
        return step.run(channel, clear), clear

    def _hand_over(self, number: int, share: Share) -> None:
        """Hand P1's share of an input over to P0, for every step that will want it."""
        for at in (step for entered, step in self._plan.handed if entered == number):
            kernel = self._plan.steps[at].kernel
            assert isinstance(kernel, HandsOver)  # noqa: S101 - it was planned as one
            self._handed[at] = kernel.hand(self.channel(at), self._supply.peek(at), share)

    def take_up(self, step: Resume, *, is_public: bool) -> AnyShare:
        """Take up my share of what an earlier run left."""
        self._next(step, ())
        kept = self._kept.get(step.name)
        share = step.run(kept)
        if is_public:
            return share
        return self.protocol.boundary.resumed(step.name, share, kept)

    def recall(self, value: AnyShare) -> AnyShare | None:
        """Take what I have of a value from the cache."""
        if not isinstance(value, Share):
            return None
        name, owner = self.notes.get(value, "name"), self.notes.get(value, "owner")
        if name is None or self._cache.find(name, value.spec, owner) is None:
            return None
        clear = self._clear.get(value, "clear")
        return self._cache.take(name, share=value.words, clear=clear)

    def keep_opening(self, name: str, opening: AnyShare) -> None:
        """Keep the masked opening of an input until the run is over."""
        assert isinstance(opening, MaskedOpening)  # noqa: S101 - `open_masked` gave it
        self.kept_openings[name] = opening

    def open_masked(
        self, values: tuple[AnyShare, ...], step: OpenMasked
    ) -> Callable[[], tuple[AnyShare, ...]]:
        """Open values under masks."""
        channel = self._next(step, values)
        material = self._supply.take(channel.step)
        clear = tuple(self._clear.get(value, "clear") for value in values)
        if step.is_posted:
            return step.begin(channel, material, values, clear)
        opened = step.run(channel, material, values, clear)
        return lambda: opened

    def find_opening(self, name: str, spec: Spec, owner: Party | None) -> AnyShare | None:
        """Take an input from the cache by its name."""
        known = self._cache.find(name, spec, owner)
        return None if known is None else self._cache.opening(name)

    def _open_weight(self, step: OpenWeight) -> AnyShare:
        channel = self._next(step, ())
        given = self._inputs.get(step.name) if step.owner == channel.me else None
        if not isinstance(given, EncodedInput):
            given = made(given, self.shown)
        prg, on = self._supply.stream(channel.step), self._cache.weights_on
        return step.run(channel, prg, given, on=on)

    def join(self, name: str, fresh: AnyShare, *, length: int, dim: int) -> AnyShare:
        """Put entries behind kept ones; they are kept when the run is over."""
        assert isinstance(fresh, MaskedOpening)  # noqa: S101 - `open_masked` gave it
        self.grown[name] = self._cache.join(name, fresh, length=length, dim=dim)
        return self.grown[name]

    def note_layout(self, value: AnyShare, view: View, out: AnyShare) -> None:
        """Note about a value in another layout what is known about the value."""
        super().note_layout(value, view, out)
        clear = self._clear.get(value, "clear")
        if clear is not None:
            self._clear.put(out, "clear", view(clear))

    def reveal(self, step: Open, value: AnyShare) -> Tensor | None:
        """Send my share of a value to those who get it; give the value if I am one of them."""
        return step.run(self._next(step, (value,)), (), value)

    def check(self) -> None:
        """Check all messages since the last check, where the plan has a check now."""
        step = self.protocol.boundary.check
        steps = self._plan.steps
        if step is not None and self._step < len(steps) and steps[self._step].kernel == step:
            self.act(step)

    def _next(self, kernel: Declares, operands: tuple[AnyShare, ...]) -> Channel:
        """Move to the next step of the plan, and make sure that it is this one."""
        number = self._step
        specs = tuple(operand.spec for operand in operands)
        steps = self._plan.steps
        if number >= len(steps) or (steps[number].kernel, steps[number].operands) != (
            kernel,
            specs,
        ):
            planned = steps[number].kernel if number < len(steps) else "the end"
            raise DisagreementError(
                self._session.me, f"step {number} is {kernel}, but the plan says {planned}"
            )
        self._step += 1
        self._advance(self._step)
        return self.channel(number)

    def channel(self, number: int) -> Channel:
        """Return the messages and generators of a step."""
        return Channel(
            self._session,
            self.roles,
            run=self._run,
            step=number,
            device=self._device,
            state=self._state,
            told=self._told,
        )


def made(given: Given | None, opened: list[Tensor]) -> Tensor | None:
    """Make an input that depends on what was opened to its owner before."""
    if isinstance(given, Codes):
        raise InputError("codes are brought in by `ops.coded`, got them for `ops.input`")
    if isinstance(given, EncodedInput):
        raise InputError("words are brought in by `ops.weight`, got them for `ops.input`")
    return given(tuple(opened)) if callable(given) else given
