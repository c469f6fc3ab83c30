"""Masked once, used often: a secret is opened under a mask, and every product uses that opening.

A Beaver product opens x - a and y - b. Nothing forbids to use x - a again for another product of
x: a is never used for any other secret, and what the dealer shares of its products with other
masks is hidden by fresh words. So weights are opened once, and an activation that three
projections read is opened once too. If x is a computing party's own input, that party can know
the whole of a and send x - a, one way: both then have half as much to multiply.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.mpc.additive2.local import numeric, numeric_share
from tacit.mpc.boundary import WORD_BYTES
from tacit.mpc.contract import Channel, Declaration, Roles
from tacit.mpc.cost import Message, Round
from tacit.mpc.randomness import Need, OpeningMask, Parts, unpack
from tacit.mpc.share import (
    AnyShare,
    AnySpec,
    Mask,
    MaskedOpening,
    OpeningSpec,
    Party,
    Share,
    Spec,
)
from tacit.result import Phase


@dataclass(frozen=True)
class OpenMasked:
    """Open secrets under masks that the dealer can draw again.

    Guarantee: the parties see x - a for a uniform a that masks nothing else, and nothing else.
    An owner's mask is uniform to the other party, who alone receives anything.
    Cost: 1 round; 8 bytes per element each way, or from the owner to the other party for an input
    of P0 or P1.
    """

    owners: tuple[Party | None, ...]
    phase: Phase

    def declare(self, roles: Roles, *operands: AnySpec) -> Declaration:
        """Say what is sent."""
        messages = []
        for other, sender, receiver in (
            ("second", roles.first, roles.second),
            ("first", roles.second, roles.first),
        ):
            size = sum(
                spec.elements
                for spec, owner in zip(operands, self.owners, strict=True)
                if owner != other
            )
            if size:
                messages.append(Message(sender, receiver, WORD_BYTES * size))
        rounds: tuple[Round, ...] = (tuple(messages),)
        return Declaration(
            out=None,
            needs=self._needs(operands),
            rounds=rounds if self.phase == "online" else (),
            offline=rounds if self.phase == "offline" else (),
        )

    def _needs(self, operands: tuple[AnySpec, ...]) -> tuple[Need, ...]:
        return self._masks(operands)

    def _masks(self, operands: tuple[AnySpec, ...]) -> tuple[OpeningMask, ...]:
        return tuple(
            OpeningMask(place, numeric(spec, "multiplying").shape, owner)
            for place, (spec, owner) in enumerate(zip(operands, self.owners, strict=True))
        )

    def outs(self, step: int, *operands: AnySpec) -> tuple[OpeningSpec, ...]:
        """Describe the results, if this is that step of a plan."""
        specs = (numeric(spec, "multiplying") for spec in operands)
        return tuple(
            _opening(spec, Mask(step=step, place=need.place, shape=need.shape, holder=need.holder))
            for spec, need in zip(specs, self._masks(operands), strict=True)
        )

    def run(
        self,
        channel: Channel,
        material: tuple[Parts, ...],
        operands: tuple[AnyShare, ...],
        clear: tuple[Tensor | None, ...],
    ) -> tuple[MaskedOpening, ...]:
        """Send what I have of the masked secrets, and put them together.

        Args:
            channel: where to send.
            material: my part of each mask.
            operands: my shares.
            clear: of each operand, the whole secret if it is mine.
        """
        me: Party = "first" if channel.is_first else "second"
        shares = tuple(numeric_share(operand) for operand in operands)
        shapes = [share.spec.shape for share in shares]
        sent, mine = _masked(shares, material, clear)
        if len(sent):
            channel.send(channel.other, sent, phase=self.phase)
        wanted = [shape for shape, owner in zip(shapes, self.owners, strict=True) if owner != me]
        received = iter(self._receive(channel, wanted))
        opened = []
        for own, owner in zip(mine, self.owners, strict=True):
            theirs = None if owner == me else next(received)
            opened.append(_sum(own, theirs))
        outs = self.outs(channel.step, *(share.spec for share in shares))
        return tuple(
            MaskedOpening(e, parts[0] if parts else None, x, out)
            for e, parts, x, out in zip(opened, material, clear, outs, strict=True)
        )

    def _receive(self, channel: Channel, shapes: list[tuple[int, ...]]) -> Parts:
        if not shapes:
            return ()
        size = sum(torch.Size(shape).numel() for shape in shapes)
        return unpack(channel.recv(channel.other, (size,)), tuple(shapes))


def _opening(spec: Spec, mask: Mask) -> OpeningSpec:
    return OpeningSpec(shape=spec.shape, frac_bits=spec.frac_bits, largest=spec.largest, mask=mask)


def _masked(
    shares: tuple[Share, ...], material: tuple[Parts, ...], clear: tuple[Tensor | None, ...]
) -> tuple[Tensor, list[Tensor | None]]:
    """Subtract my part of each mask from my share, or from the secret if it is mine.

    Returns:
        What to send, end to end, and where in it each operand lies that I have a mask for.
    """
    shapes = tuple(tuple(parts[0].shape) for parts in material if parts)
    sent = shares[0].words.new_empty(sum(torch.Size(shape).numel() for shape in shapes))
    places = iter(unpack(sent, shapes))
    return sent, [
        torch.sub(share.words if x is None else x, parts[0], out=next(places)) if parts else None
        for share, parts, x in zip(shares, material, clear, strict=True)
    ]


def _sum(mine: Tensor | None, theirs: Tensor | None) -> Tensor:
    if mine is None or theirs is None:
        one = theirs if mine is None else mine
        assert one is not None  # noqa: S101 - somebody has sent every operand
        return one
    return theirs.add_(mine)
