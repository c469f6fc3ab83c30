"""A cache of opened weights: masked openings that later runs of a session use again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.mpc.share import Mask, MaskedOpening, OpeningSpec, Party, SharePair, Spec
from tacit.party import Session
from tacit.ring import Factor

REMEMBERED_BYTES = 1 << 29
"""How many masks of earlier runs a dealer keeps; others it draws again."""

ALL_WEIGHTS_BYTES = 5 << 28
"""Up to so many where these are the masks of all weights; some alone would save next to nothing."""
_SPARE_OF_CARD = 32
"""Masks are kept on a card until this part of it is left."""


@dataclass(frozen=True)
class Grown:
    """A growing tensor as a run left it: its openings, or as the dealer its masks."""

    entries: int
    spec: OpeningSpec
    opening: MaskedOpening | None
    masks: SharePair | None

    def words(self) -> SharePair:
        """Return what was opened and my share of its mask, or as the dealer both shares."""
        if self.opening is not None:
            return self.opening.opened, self.opening.mask_share
        return (None, None) if self.masks is None else self.masks

    def copied(self) -> "Grown":
        """Copy the words to memory of their own."""
        first, second = (None if one is None else one.clone() for one in self.words())
        if self.opening is None:
            return replace(self, masks=(first, second))
        assert first is not None  # noqa: S101 - something was opened
        return replace(self, opening=replace(self.opening, opened=first, mask_share=second))


class OpeningCache:
    """What `ops.cache_openings` opened in earlier runs, so that later runs need not open it again.

    Every party of a session has one, and hands the same one to `make_plan` and to `compute` or
    `serve`. Inputs of P0 and P1 are kept, whose owner can see that they have not changed, and
    values that were taken up by `resume`, of which each party can see that its share has not.

    Args:
        weights_on: the device on which weights lie and are multiplied. Where a run is not recorded
            (`material.recording`) that is all a card is good for with a few rows: launching the
            many small steps between two messages takes longer than a processor takes to do them.

    Guarantee: that of `OpenMasked`: a mask is drawn in one run and masks one value for ever.
    """

    def __init__(self, *, weights_on: torch.device | str = "cpu") -> None:
        self.weights_on = torch.device(weights_on)
        self._generators: object = None
        self._specs: dict[str, OpeningSpec] = {}
        self._openings: dict[str, MaskedOpening] = {}
        self._grown: dict[tuple[int, str], Grown] = {}
        self._place = (0, 0)
        self._masks: dict[tuple[int, int, int], SharePair] = {}
        self._mask_bytes = 0
        self._factors: dict[tuple[int, int, int], Factor] = {}
        self._shares: dict[str, Tensor] = {}

    def find(self, name: str | None, spec: Spec, owner: Party | None) -> OpeningSpec | None:
        """Say how an input was opened, if one with these public facts was."""
        known = None if name is None else self._specs.get(name)
        if known is None or known.mask.holder != owner:
            return None
        facts = (known.shape, known.frac_bits, known.largest)
        return known if facts == (spec.shape, spec.frac_bits, spec.largest) else None

    @property
    def opened(self) -> int:
        """Return how many values are open, on which the plan of a program depends."""
        return len(self._specs)

    def take(self, name: str, *, share: Tensor, clear: Tensor | None) -> MaskedOpening:
        """Return what I have of a value.

        Args:
            name: of the value.
            share: my share of it now.
            clear: the value itself, if it is my input.

        Raises:
            DataError: the value is not what it was.
        """
        opening = self._openings[name]
        if opening.clear is not None:
            is_same = clear is not None and torch.equal(clear, opening.clear)
        else:
            known = self._shares.get(name)
            is_same = known is None or share is known or torch.equal(share, known)
        if not is_same:
            raise DataError(
                f"input {name!r} is not what it was when it was opened under its mask; start a new "
                "session, or give the new values another name"
            )
        return opening

    def keep(
        self,
        run: int,
        specs: tuple[tuple[str, OpeningSpec], ...],
        openings: Mapping[str, MaskedOpening],
        shares: Mapping[str, Tensor],
    ) -> None:
        """Add what a run has opened; its masks are found again by the number of the run.

        Args:
            run: its number.
            specs: the public facts about what was opened, by name.
            openings: what I have of it, if I compute.
            shares: my shares of what is nobody's input.
        """
        for name, spec in specs:
            there = replace(spec, mask=replace(spec.mask, run=run))
            self._specs[name] = there
            if name in openings:
                self._openings[name] = replace(openings[name], spec=there)
            if name in shares:
                self._shares[name] = shares[name]

    def take_specs(self, other: "OpeningCache") -> None:
        """Know of the openings of another cache that they are there, for plans alone."""
        self._specs.update(other._specs)

    def opening(self, name: str) -> MaskedOpening:
        """Return what I have of an input, as `find` described it."""
        return self._openings[name]

    def remember(self, key: tuple[int, int, int], draw: Callable[[], SharePair]) -> SharePair:
        """Return a mask of an earlier run, by run, step and place; as the dealer.

        It is drawn once, or, when there are many, again: memory need not hold them all.
        """
        known = self._masks.get(key)
        if known is not None:
            return known
        drawn = draw()
        size = sum(one.nbytes for one in drawn if one is not None)
        if self._mask_bytes + size <= self._budget():
            self._mask_bytes += size
            self._masks[key] = drawn
        return drawn

    def remember_factor(self, key: tuple[int, int, int], prepare: Callable[[], Factor]) -> Factor:
        """Return the prepared mask of a weight of an earlier run, as the dealer with a card.

        It is prepared once, or, when the card is nearly full, again.
        """
        known = self._factors.get(key)
        if known is not None:
            return known
        made = prepare()
        if _has_room(made):
            self._factors[key] = made
        return made

    def has_factor(self, mask: Mask) -> bool:
        """Tell whether the mask of a weight is prepared, as the dealer with a card."""
        return mask.run is not None and (mask.run, mask.step, mask.place) in self._factors

    def has_room(self, key: tuple[int, int, int], nbytes: int) -> bool:
        """Tell whether a mask of so many bytes is remembered, or would be."""
        return key in self._masks or self._mask_bytes + nbytes <= self._budget()

    def _budget(self) -> int:
        """Say how many bytes of masks to keep: those of all weights, if there is room for all."""
        weights = sum(8 * prod(one.shape) for one in self._specs.values() if one.mask.is_weight)
        return max(REMEMBERED_BYTES, weights if weights <= ALL_WEIGHTS_BYTES else 0)

    def place(self, number: int, past: int) -> None:
        """Say which set of growing tensors the next run adds to, and behind how many entries.

        All parties say the same: both are public, and no part of a plan, so that one plan serves
        every length up to the one that it has room for.
        """
        self._place = (number, past)

    def holds(self, number: int, past: int) -> bool:
        """Tell whether so many entries of a set of growing tensors are open."""
        lengths = [one.entries for (at, _), one in self._grown.items() if at == number]
        return past <= min(lengths, default=0)

    def join(self, name: str, fresh: MaskedOpening, *, length: int, dim: int) -> MaskedOpening:
        """Put an opening behind the entries that I have, and zeros behind it."""
        spec = fresh.spec.grown(name, length=length, dim=dim)
        known = self._known(spec, name)
        assert fresh.mask_share is not None  # noqa: S101 - nobody's input
        if known is None:
            olds: tuple[Tensor | None, Tensor | None] = (None, None)
        else:
            assert known.opening is not None  # noqa: S101 - I compute
            olds = (known.opening.opened, known.opening.mask_share)
        opened, mask = (
            self._joined(old, new, spec)
            for old, new in zip(olds, (fresh.opened, fresh.mask_share), strict=True)
        )
        return MaskedOpening(opened, mask, None, spec)

    def places(self, rows: int) -> Tensor:
        """Return where the next run puts so many new entries."""
        return torch.arange(rows) + self._place[1]

    def lay_out(self, spec: OpeningSpec, there: Sequence[Tensor]) -> None:
        """Lay what I have of the entries so far out in fixed memory, and zeros behind them.

        That is what was opened and my share of its mask, or as the dealer both shares.
        """
        known, (_, past), dim = self._known(spec, spec.mask.behind), self._place, spec.mask.dim
        if past + spec.mask.shape[dim] > spec.mask.length:
            raise ConfigError(f"{past} entries and new ones do not fit into {spec.mask.length}")
        olds = (None, None) if known is None else known.words()
        is_there = olds[0] is there[0]
        if known is not None and is_there and known.entries == past:
            return
        for new, old in zip(there, olds, strict=True):
            if old is not None and not is_there:
                new.narrow(dim, 0, past).copy_(old.narrow(dim, 0, past))
            new.narrow(dim, past, spec.mask.length - past).zero_()

    def leave(self, number: int | None) -> int:
        """Give a set of growing tensors memory of its own, if another is laid out in it next.

        Returns:
            The set that the next run adds to.
        """
        for key, one in self._grown.items():
            if key[0] == number != self.number:
                self._grown[key] = one.copied()
        return self.number

    @property
    def number(self) -> int:
        """Return the set of growing tensors that the next run adds to."""
        return self._place[0]

    def join_masks(self, spec: OpeningSpec, fresh: SharePair) -> SharePair:
        """Put masks behind those of the entries so far, as the dealer; what is public has none."""
        known = self._known(spec, spec.mask.behind)
        olds: SharePair = (None, None)
        if known is not None:
            assert known.masks is not None  # noqa: S101 - I dealt for them
            olds = known.masks
        first, second = (
            self._joined(old, new, spec)
            for old, new in zip(olds, fresh, strict=True)
            if new is not None
        )
        return first, second

    def _known(self, spec: OpeningSpec, name: str) -> Grown | None:
        """Return the entries before, if there should be some."""
        number, past = self._place
        if not past:
            return None
        known = self._grown.get((number, name))
        if known is None or known.entries < past:
            raise ConfigError(f"{past} entries of {name!r} are wanted that no run has opened")
        facts = (known.spec.largest, known.spec.frac_bits, known.spec.ring_bits)
        if facts != (spec.largest, spec.frac_bits, spec.ring_bits):
            raise ConfigError(f"the entries of {name!r} were opened with other bounds")
        return known

    def _joined(self, old: Tensor | None, fresh: Tensor, spec: OpeningSpec) -> Tensor:
        _, past = self._place
        dim, parts = spec.mask.dim, [fresh]
        if old is not None:
            parts.insert(0, old.narrow(dim, 0, past).to(fresh.device))
        rest = spec.mask.length - past - fresh.shape[dim]
        if rest < 0:
            raise ConfigError(
                f"{past} entries and {fresh.shape[dim]} new ones do not fit into {spec.mask.length}"
            )
        if rest:
            shape = list(fresh.shape)
            shape[dim] = rest
            parts.append(fresh.new_zeros(shape))
        return torch.cat(parts, dim)

    def grow(
        self,
        specs: tuple[tuple[str, OpeningSpec], ...],
        openings: Mapping[str, MaskedOpening] | None = None,
        masks: Mapping[str, SharePair] | None = None,
    ) -> None:
        """Keep growing tensors as a run leaves them: as openings, or as the dealer's masks."""
        number, past = self._place
        for name, spec in specs:
            entries = past + spec.mask.shape[spec.mask.dim]
            opening, pair = (openings or {}).get(name), (masks or {}).get(name)
            self._grown[number, name] = Grown(entries, spec, opening, pair)

    def grown_bytes(self, *, besides: int) -> int:
        """Return what all sets of growing tensors but one take here: openings, or masks."""
        kept = [one for (number, _), one in self._grown.items() if number != besides]
        openings = [one.opening for one in kept if one.opening is not None]
        parts = [part for one in openings for part in (one.opened, one.mask_share)]
        parts += [part for one in kept if one.masks is not None for part in one.masks]
        return sum(part.nbytes for part in parts if part is not None)

    def forget(self, number: int) -> None:
        """Forget a set of growing tensors."""
        for key in [one for one in self._grown if one[0] == number]:
            del self._grown[key]

    def bind(self, session: Session) -> None:
        """Make sure that this is used in one session: the masks come from its generators."""
        if self._generators is not None and self._generators is not session.generators:
            raise ConfigError("a cache belongs to one session; make another for this one")
        self._generators = session.generators


def _has_room(factor: Factor) -> bool:
    """Tell whether the card that holds a factor has a little room left beside it."""
    if factor.planes is None or factor.planes.device.type != "cuda":
        return True
    free, total = torch.cuda.mem_get_info(factor.planes.device)
    return free > total // _SPARE_OF_CARD
