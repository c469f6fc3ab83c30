"""A cache of opened weights: masked openings that later runs of a session use again."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.mpc.share import Mask, MaskedOpening, OpeningSpec, Party, SharePair, Spec
from tacit.party import Session

REMEMBERED_BYTES = 1 << 29
"""How many masks of earlier runs a dealer keeps; others it draws again."""


class OpeningCache:
    """What `ops.cache_openings` opened in earlier runs, so that later runs need not open it again.

    Every party of a session has one, and hands the same one to `make_plan` and to `compute` or
    `serve`. Inputs of P0 and P1 are kept, whose owner can see that they have not changed, and
    values that were taken up by `resume`, of which each party can see that its share has not.

    Guarantee: that of `OpenMasked`: a mask is drawn in one run and masks one value for ever.
    """

    def __init__(self) -> None:
        self._generators: object = None
        self._specs: dict[str, OpeningSpec] = {}
        self._openings: dict[str, MaskedOpening] = {}
        self._grown: dict[str, tuple[OpeningSpec, MaskedOpening | None, SharePair | None]] = {}
        self._masks: dict[tuple[int, int, int], SharePair] = {}
        self._mask_bytes = 0
        self._shares: dict[str, Tensor] = {}

    def find(self, name: str | None, spec: Spec, owner: Party | None) -> OpeningSpec | None:
        """Say how an input was opened, if one with these public facts was."""
        known = None if name is None else self._specs.get(name)
        if known is None or known.mask.holder != owner:
            return None
        facts = (known.shape, known.frac_bits, known.largest)
        return known if facts == (spec.shape, spec.frac_bits, spec.largest) else None

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
        if self._mask_bytes + size <= REMEMBERED_BYTES:
            self._mask_bytes += size
            self._masks[key] = drawn
        return drawn

    def grown_length(self, name: str) -> int:
        """Return how many entries of a growing tensor are open."""
        found = self._grown.get(name)
        return 0 if found is None else found[0].shape[found[0].mask.dim]

    def grown_largest(self, name: str, past: int) -> int:
        """Return how large its entries can be; 0 if there are none.

        Raises:
            ConfigError: there are fewer than that.
        """
        if not past:
            return 0
        if self.grown_length(name) < past:
            raise ConfigError(f"{past} entries of {name!r} are wanted that no run has opened")
        return self._grown[name][0].largest

    def join(self, name: str, fresh: MaskedOpening, *, past: int, dim: int) -> MaskedOpening:
        """Put an opening behind the first entries that I have."""
        largest = max(fresh.spec.largest, self.grown_largest(name, past))
        spec = fresh.spec.grown(name, past=past, dim=dim, largest=largest)
        if not past:
            return replace(fresh, spec=spec)
        known = self._grown[name][1]
        assert known is not None and known.mask_share is not None  # noqa: S101, PT018 - I compute
        assert fresh.mask_share is not None  # noqa: S101 - nobody's input
        opened = torch.cat((known.opened.narrow(dim, 0, past), fresh.opened), dim)
        mask = torch.cat((known.mask_share.narrow(dim, 0, past), fresh.mask_share), dim)
        return MaskedOpening(opened, mask, None, spec)

    def join_masks(self, mask: Mask, fresh: SharePair) -> SharePair:
        """Put masks behind those of the first entries, as the dealer."""
        if not mask.past:
            return fresh
        known = self._grown[mask.behind][2]
        assert known is not None  # noqa: S101 - I dealt for them
        first, second = (
            torch.cat((old.narrow(mask.dim, 0, mask.past), new), mask.dim)
            for old, new in zip(known, fresh, strict=True)
            if old is not None and new is not None
        )
        return first, second

    def grow(
        self,
        specs: tuple[tuple[str, OpeningSpec], ...],
        openings: Mapping[str, MaskedOpening] | None = None,
        masks: Mapping[str, SharePair] | None = None,
    ) -> None:
        """Keep growing tensors as a run leaves them: as openings, or as the dealer's masks."""
        for name, spec in specs:
            self._grown[name] = (spec, (openings or {}).get(name), (masks or {}).get(name))

    def forget(self, prefix: str) -> None:
        """Forget all growing tensors whose names begin so."""
        for name in [one for one in self._grown if one.startswith(prefix)]:
            del self._grown[name]

    def bind(self, session: Session) -> None:
        """Make sure that this is used in one session: the masks come from its generators."""
        if self._generators is not None and self._generators is not session.generators:
            raise ConfigError("a cache belongs to one session; make another for this one")
        self._generators = session.generators
