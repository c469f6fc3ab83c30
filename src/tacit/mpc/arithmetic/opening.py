"""Masked once, used often: a secret is opened under a mask, and every product uses that opening.

A Beaver product opens x - a and y - b. Nothing forbids to use x - a again for another product of
x: a is never used for any other secret, and what the dealer shares of its products with other
masks is hidden by fresh words. So weights are opened once, and an activation that three
projections read is opened once too. If x is a computing party's own input, that party can know
the whole of a and send x - a, one way: both then have half as much to multiply.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.mpc import narrow
from tacit.mpc.arithmetic.local import numeric, numeric_share
from tacit.mpc.arithmetic.rescaled import Rescaling, ShiftedMask, cut_share, public_part
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.material.randomness import Need, OpeningMask, Parts
from tacit.mpc.share import (
    WORD_BITS,
    AnyShare,
    AnySpec,
    Mask,
    MaskedOpening,
    OpeningSpec,
    Party,
    Share,
    Spec,
)
from tacit.party.cost import CostedMessage, Round
from tacit.result import Phase


@dataclass(frozen=True)
class OpenMasked:
    """Open secrets under masks that the dealer can draw again.

    Guarantee: the parties see x - a for a uniform a that masks nothing else, and nothing else.
    An owner's mask is uniform to the other party, who alone receives anything.
    Cost: 1 round; 8 bytes per element each way, or from the owner to the other party for an input
    of P0 or P1; of a smaller ring no more bytes than hold it.

    ``rescalings`` say how values are opened that are to lose low bits on the way; None keeps all.
    What ``is_posted`` is sent at this step and waited for later: it shares the next step's round.
    """

    owners: tuple[Party | None, ...]
    phase: Phase
    rescalings: tuple[Rescaling | None, ...] = ()
    is_posted: bool = False

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what is sent."""
        messages = []
        for other, sender, receiver in (
            ("second", roles.first, roles.second),
            ("first", roles.second, roles.first),
        ):
            size = sum(
                spec.elements * narrow.size_for(bits)
                for spec, owner, bits in zip(
                    operands, self.owners, self._rings(operands), strict=True
                )
                if owner != other
            )
            if size:
                messages.append(CostedMessage(sender, receiver, size))
        rounds: tuple[Round, ...] = (tuple(messages),)
        needs = self._needs(operands)
        if self.is_posted:
            return Declaration(out=None, needs=needs, posted=tuple(messages))
        return Declaration(
            out=None,
            needs=needs,
            rounds=rounds if self.phase == "online" else (),
            offline=rounds if self.phase == "offline" else (),
        )

    def _hows(self) -> tuple[Rescaling | None, ...]:
        return self.rescalings or (None,) * len(self.owners)

    def _specs(self, operands: tuple[AnySpec, ...]) -> list[Spec]:
        both = zip(operands, self._hows(), strict=True)
        return [numeric(spec, "multiplying", any_ring=how is not None) for spec, how in both]

    def _rings(self, operands: tuple[AnySpec, ...]) -> list[int]:
        """Return modulo which power of two each operand is opened."""
        both = zip(self._specs(operands), self._hows(), strict=True)
        return [spec.ring_bits if how is None else how.ring_bits(spec) for spec, how in both]

    def _needs(self, operands: tuple[AnySpec, ...]) -> tuple[Need, ...]:
        needs: list[Need] = []
        parts = zip(self._specs(operands), self.owners, self._hows(), strict=True)
        for place, (spec, owner, how) in enumerate(parts):
            if how is not None and how.is_exact:
                needs.append(ShiftedMask(place, spec.shape, spec.ring_bits, how.drop))
            else:
                needs.append(OpeningMask(place, spec.shape, owner))
        return tuple(needs)

    def outs(self, step: int, *operands: AnySpec) -> tuple[OpeningSpec, ...]:
        """Describe the results, if this is that step of a plan."""
        parts = zip(self._specs(operands), self.owners, self._hows(), strict=True)
        return tuple(
            _opening(spec, Mask(step=step, place=place, shape=spec.shape, holder=owner), how)
            for place, (spec, owner, how) in enumerate(parts)
        )

    def run(
        self,
        channel: Channel,
        material: tuple[Parts, ...],
        operands: tuple[AnyShare, ...],
        clear: tuple[Tensor | None, ...],
    ) -> tuple[MaskedOpening, ...]:
        """Send what I have of the masked secrets, and put them together; see `begin`."""
        return self.begin(channel, material, operands, clear)()

    def begin(
        self,
        channel: Channel,
        material: tuple[Parts, ...],
        operands: tuple[AnyShare, ...],
        clear: tuple[Tensor | None, ...],
    ) -> Callable[[], tuple[MaskedOpening, ...]]:
        """Send what I have of the masked secrets; what comes back waits, and puts them together.

        Args:
            channel: where to send.
            material: my part of each mask.
            operands: my shares.
            clear: of each operand, the whole secret if it is mine.
        """
        me: Party = "first" if channel.is_first else "second"
        shares = tuple(numeric_share(operand) for operand in operands)
        specs = tuple(share.spec for share in shares)
        rings, hows = self._rings(specs), self._hows()
        mine = [
            _masked(share, parts, x, how, is_first=channel.is_first) if parts else None
            for share, parts, x, how in zip(shares, material, clear, hows, strict=True)
        ]
        sent = [
            narrow.cut(own.reshape(-1), narrow.size_for(bits))
            for own, bits in zip(mine, rings, strict=True)
            if own is not None
        ]
        if sent and self.is_posted:
            channel.post(channel.other, _joined(sent))
        elif sent:
            channel.send(channel.other, _joined(sent), phase=self.phase)
        wanted = [
            (spec.elements, narrow.size_for(bits))
            for spec, owner, bits in zip(specs, self.owners, rings, strict=True)
            if owner != me
        ]
        outs = self.outs(channel.step, *specs)

        def complete() -> tuple[MaskedOpening, ...]:
            received = iter(_receive(channel, wanted, is_posted=self.is_posted))
            opened = [
                _sum(own, None if owner == me else next(received).view(spec.shape))
                for own, owner, spec in zip(mine, self.owners, specs, strict=True)
            ]
            parts = zip(opened, material, clear, outs, strict=True)
            return tuple(_put_together(*one) for one in parts)

        return complete


def _opening(spec: Spec, mask: Mask, how: Rescaling | None) -> OpeningSpec:
    drop = 0 if how is None else how.drop
    is_exact = how is not None and how.is_exact
    return OpeningSpec(
        shape=spec.shape,
        frac_bits=spec.frac_bits - drop,
        # A cut loses less than one unit, an exact opening up to one and a half.
        largest=(spec.largest >> drop) + bool(drop) * (1 + is_exact),
        mask=mask,
        ring_bits=WORD_BITS if is_exact else spec.ring_bits - drop,
        rescaled=(spec.ring_bits, drop) if is_exact else None,
    )


@dataclass(frozen=True)
class FromOpening:
    """Take shares of what an exact opening has rescaled: of the number without its lowest bits.

    Guarantee: nothing is sent. Cost: 0 rounds, 0 bytes. Error: that of the opening.
    """

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what comes out."""
        return Declaration(out=self._out(operands[0]))

    def _out(self, x: AnySpec) -> Spec:
        if not isinstance(x, OpeningSpec) or x.mask.holder is not None:
            raise InputError("taking shares wants an opening under a mask that nobody knows")
        return Spec(shape=x.shape, frac_bits=x.frac_bits, largest=x.largest, ring_bits=x.ring_bits)

    def run(self, channel: Channel, material: tuple[Parts, ...], *operands: AnyShare) -> AnyShare:
        """Add what is open to the first party's share of the mask."""
        (x,) = operands
        assert isinstance(x, MaskedOpening)  # noqa: S101 - `declare` has refused everything else
        assert x.mask_share is not None  # noqa: S101 - nobody is the holder
        words = x.opened + x.mask_share if channel.is_first else x.mask_share
        return Share(words, self._out(x.spec))


def _put_together(e: Tensor, parts: Parts, clear: Tensor | None, out: OpeningSpec) -> MaskedOpening:
    if out.rescaled is None:
        return MaskedOpening(e, parts[0] if parts else None, clear, out)
    front, top = public_part(e, *out.rescaled)
    reading = ShiftedMask(out.mask.place, out.shape, *out.rescaled).read(parts, top)
    return MaskedOpening(front, reading, None, out, top)


def _masked(
    share: Share, parts: Parts, clear: Tensor | None, how: Rescaling | None, *, is_first: bool
) -> Tensor:
    """Subtract my part of a mask from my share, or from the secret if it is mine."""
    words = share.words if clear is None else clear
    if how is not None and not how.is_exact:
        words = cut_share(words, share.spec.ring_bits, how.drop, is_first=is_first)
    return words - parts[0]


def _joined(parts: list[Tensor]) -> Tensor:
    """Lay words, or the bytes of narrower ones, end to end."""
    if len(parts) == 1:
        return parts[0]
    if all(part.dtype == torch.int64 for part in parts):
        return torch.cat(parts)
    return torch.cat([part.view(torch.uint8) for part in parts])


def _receive(channel: Channel, wanted: list[tuple[int, int]], *, is_posted: bool) -> list[Tensor]:
    """Receive the other party's words, so many in so many bytes each."""
    if not wanted:
        return []
    take = channel.collect if is_posted else channel.recv
    if all(size == narrow.WORD_BYTES for _, size in wanted):
        counts = [count for count, _ in wanted]
        words = take(channel.other, (sum(counts),), dtype=torch.int64)
        return list(words.split_with_sizes(counts))
    sizes = [count * size for count, size in wanted]
    octets = take(channel.other, (sum(sizes),), dtype=torch.uint8).split_with_sizes(sizes)
    return [
        narrow.uncut(_aligned(part, size), size)
        for part, (_, size) in zip(octets, wanted, strict=True)
    ]


def _aligned(octets: Tensor, size: int) -> Tensor:
    """Give bytes in the midst of a message a place where they can be read as words."""
    return octets.clone().view(torch.int64) if size == narrow.WORD_BYTES else octets.clone()


def _sum(mine: Tensor | None, theirs: Tensor | None) -> Tensor:
    if mine is None or theirs is None:
        one = theirs if mine is None else mine
        assert one is not None  # noqa: S101 - somebody has sent every operand
        return one
    return theirs.add_(mine)
