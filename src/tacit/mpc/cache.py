"""A cache of opened weights: masked openings that later runs of a session use again."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.mpc.share import MaskedOpening, OpeningSpec, Party, Spec
from tacit.party import Session


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

    def bind(self, session: Session) -> None:
        """Make sure that this is used in one session: the masks come from its generators."""
        if self._generators is not None and self._generators is not session.generators:
            raise ConfigError("a cache belongs to one session; make another for this one")
        self._generators = session.generators
