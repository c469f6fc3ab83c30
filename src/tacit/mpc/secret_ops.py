"""Operations on one party's shares, along the plan that all have agreed on."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor

from tacit.errors import DisagreementError, InputError
from tacit.mpc.arithmetic.coded import Codes, OpenCoded
from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.mpc.arithmetic.rescaled import Rescaling
from tacit.mpc.arithmetic.weights import OpenWeight, Words
from tacit.mpc.boundary import Input, Open, Resume
from tacit.mpc.cache import OpeningCache
from tacit.mpc.contract import Begun, Channel, HandsOver, Kernel
from tacit.mpc.interpreter import Scope
from tacit.mpc.material.randomness import Parts
from tacit.mpc.memo import Memo
from tacit.mpc.ops import ProtocolOps
from tacit.mpc.plan import (
    AnyStep,
    Plan,
    owner_role,
)
from tacit.mpc.protocols.checked import tags
from tacit.mpc.protocols.checked.boundary import Deliver, OpenChecked, TellInput
from tacit.mpc.protocols.checked.check import Check
from tacit.mpc.protocols.checked.product import Enter, OpenTagged
from tacit.mpc.protocols.checked.proofs import Proofs
from tacit.mpc.protocols.checked.shares import TaggedShare, tagged
from tacit.mpc.registry import find_protocol
from tacit.mpc.share import AnyShare, AnySpec, MaskedOpening, Party, Share, Spec, View
from tacit.party import Session
from tacit.result import Phase
from tacit.ring import Prg

Given = Tensor | Codes | Words | Callable[[tuple[Tensor, ...]], Tensor]
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
        self._kept = kept
        self._told = {name: words.to(device) for name, words in told.items()}
        self.notes = Memo()
        self.scope = Scope()
        self.protocol = find_protocol(plan.protocol)
        self.frac_bits = plan.frac_bits
        self._device = device
        self._session = session
        self._plan = plan
        self._run = run
        self._inputs = inputs
        self._opened: list[Tensor] = []
        self._advance = advance
        self._supply = supply
        self._cache = cache
        self.kept_openings: dict[str, MaskedOpening] = {}
        self.grown: dict[str, MaskedOpening] = {}
        self._clear: Memo[Tensor] = Memo()
        self._proofs: Proofs | None = None
        if self.protocol.is_checked:
            shared, is_first = session.shared(plan.roles.dealer), session.me == plan.roles.first
            self._proofs = Proofs(tags.draw_keys(shared, is_first=is_first))
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

    def input(
        self,
        name: str,
        *,
        owner: str,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
    ) -> AnyShare:
        """Take my share of an input."""
        bits = self.frac_bits if frac_bits is None else frac_bits
        spec = Spec.of(shape=shape, frac_bits=bits, bound=bound)
        if self.is_checked and owner not in self._plan.roles.computing:
            return self._hear(TellInput(owner, name, spec))
        step = Input(owner, name, spec)
        channel = self._next(step, ())
        share, clear = self.entering(step, channel)
        self.note_input(share, name, owner_role(self._plan.roles, owner))
        self.note_entry(share, channel.step)
        if clear is not None:
            self._clear.put(share, "clear", clear)
        self._hand_over(channel.step, share)
        return self.admitted(share, name, owner, self._plan.roles.computing)

    def entering(self, step: Input, channel: Channel) -> tuple[Share, Tensor | None]:
        """Give my share of an input, and its words if it is mine."""
        mine = self._inputs.get(step.name) if step.owner == channel.me else None
        clear = step.clear(channel, made(mine, self._opened))
        return step.run(channel, clear), clear

    def admitted(self, value: AnyShare, name: str, owner: str, to: tuple[str, ...]) -> AnyShare:
        """Compare an input with its bound, if the protocol does; nobody's program sees that."""
        opened = len(self._opened)
        super().admitted(value, name, owner, to)
        del self._opened[opened:]
        return value

    def _hear(self, step: TellInput) -> AnyShare:
        """Take what an owner outside tells, and make a share of it."""
        channel = self._next(step, ())
        opening = step.take(channel, self._supply.take(channel.step))
        share = self.apply(Enter(), opening)
        self.notes.put(share, "opening", opening)
        return self.admitted(share, step.name, step.owner, self._plan.roles.computing)

    def _hand_over(self, number: int, share: Share) -> None:
        """Hand P1's share of an input over to P0, for every step that will want it."""
        for at in (step for entered, step in self._plan.handed if entered == number):
            kernel = self._plan.steps[at].kernel
            assert isinstance(kernel, HandsOver)  # noqa: S101 - it was planned as one
            self._handed[at] = kernel.hand(self.channel(at), self._supply.peek(at), share)

    def resume(
        self,
        name: str,
        *,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
        is_public: bool = False,
    ) -> AnyShare:
        """Take up my share of what an earlier run left."""
        bits = self.frac_bits if frac_bits is None else frac_bits
        step = Resume(name, Spec.of(shape=shape, frac_bits=bits, bound=bound))
        self._next(step, ())
        kept = self._kept.get(name)
        share = step.run(kept)
        if self.is_checked and not is_public:
            if not isinstance(kept, TaggedShare):
                raise InputError(
                    f"{name!r} was kept without the tags that 'checked' needs: what comes from a "
                    "file, from a client or from another session has none; use protocol 'sealed'"
                )
            share = TaggedShare(share.words, share.spec, kept.numbers)
        self.note_name(share, name)
        return share

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
        self,
        values: tuple[AnyShare, ...],
        owners: tuple[Party | None, ...],
        phase: Phase,
        rescalings: tuple[Rescaling | None, ...] = (),
        *,
        is_posted: bool = False,
    ) -> Callable[[], tuple[AnyShare, ...]]:
        """Open values under masks."""
        kind = OpenTagged if self.is_checked else OpenMasked
        step = kind(owners, phase, rescalings, is_posted)
        channel = self._next(step, values)
        material = self._supply.take(channel.step)
        clear = tuple(self._clear.get(value, "clear") for value in values)
        if is_posted:
            return step.begin(channel, material, values, clear)
        opened = step.run(channel, material, values, clear)
        return lambda: opened

    def laid_out(self, opening: AnyShare, view: View, shape: tuple[int, ...]) -> AnyShare:
        """Lay a masked opening out differently."""
        assert isinstance(opening, MaskedOpening)  # noqa: S101 - `open_masked` gave all notes
        return opening.view(view, shape)

    def find_opening(
        self,
        name: str,
        *,
        owner: str,
        shape: tuple[int, ...],
        bound: float,
        frac_bits: int | None = None,
    ) -> AnyShare | None:
        """Take an input from the cache by its name."""
        bits = self.frac_bits if frac_bits is None else frac_bits
        spec = Spec.of(shape=shape, frac_bits=bits, bound=bound)
        known = self._cache.find(name, spec, owner_role(self._plan.roles, owner))
        return None if known is None else self._cache.opening(name)

    def open_weight(
        self, name: str, *, owner: str, shape: tuple[int, ...], bound: float
    ) -> AnyShare:
        """Open an input under a mask, if it is mine, or take what was opened."""
        spec = Spec.of(shape=shape, frac_bits=self.frac_bits, bound=bound)
        step = OpenWeight(owner, name, spec)
        channel = self._next(step, ())
        given = self._inputs.get(name) if owner == channel.me else None
        if not isinstance(given, Words):
            given = made(given, self._opened)
        prg, on = self._supply.stream(channel.step), self._cache.weights_on
        return step.run(channel, prg, given, on=on)

    def open_coded(self, name: str, *, owner: str, shape: tuple[int, int]) -> AnyShare:
        """Open a matrix under a mask, if it is mine, or take what was opened."""
        step = OpenCoded(owner, name, shape)
        channel = self._next(step, ())
        return step.run(channel, self._supply.take(channel.step), self._inputs.get(name))

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

    def open(self, value: AnyShare, *, to: tuple[str, ...], what: str, why: str) -> Tensor | None:
        """Reveal a value to the named parties and write it into the ledger."""
        (value,) = self.entered(value)
        value = self.truncated(value)
        if self.is_checked:
            return self._open_checked(OpenChecked(to, what, why), tagged(value))
        step = Open(to, what, why)
        found = self.revealed(step, self._next(step, (value,)), value)
        if found is not None:
            self._opened.append(found)
        return found

    def revealed(self, step: Open, channel: Channel, value: AnyShare) -> Tensor | None:
        """Send my share of a value to those who get it; give the value if I am one of them."""
        return step.run(channel, value)

    def _open_checked(self, step: OpenChecked, value: TaggedShare) -> Tensor | None:
        """Check what was sent, reveal, and check that before anyone uses it."""
        self.check()
        channel = self._next(step, (value,))
        opened, masked = step.reveal(channel, self._supply.take(channel.step), value)
        self.check()
        if masked is not None:
            deliver = Deliver(step, channel.step)
            deliver.run(self._next(deliver, (value,)), masked)
        if opened is not None:
            self._opened.append(opened)
        return opened

    def check(self) -> None:
        """Check all messages since the last check, if the plan says so."""
        if self._step < len(self._plan.steps) and self._plan.steps[self._step].kernel == Check():
            channel = self._next(Check(), ())
            Check().run(channel, self._supply.take(channel.step))

    def _next(self, kernel: AnyStep, operands: tuple[AnyShare, ...]) -> Channel:
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
        roles = self._plan.roles
        return Channel(
            self._session,
            roles,
            run=self._run,
            step=number,
            device=self._device,
            proofs=self._proofs,
            told=self._told,
        )


def made(given: Given | None, opened: list[Tensor]) -> Tensor | None:
    """Make an input that depends on what was opened to its owner before."""
    if isinstance(given, Codes):
        raise InputError("codes are brought in by `ops.coded`, got them for `ops.input`")
    if isinstance(given, Words):
        raise InputError("words are brought in by `ops.weight`, got them for `ops.input`")
    return given(tuple(opened)) if callable(given) else given
