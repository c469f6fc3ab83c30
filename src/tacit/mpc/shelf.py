"""Weights that stay held from one run of a session to the next."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.mpc.share import HeldShare, HeldSpec, Party, Spec
from tacit.party import Session


class Shelf:
    """What `ops.hold` opened in earlier runs, so that later runs need not open it again.

    Every party of a session has one, and hands the same one to `make_plan` and to `compute` or
    `serve`. Inputs of P0 and P1 are kept, whose owner can see that they have not changed, and
    values that were taken up by `resume`, of which each party can see that its half has not.

    Guarantee: that of `Hold`: a mask is drawn in one run and masks one value for ever.
    """

    def __init__(self) -> None:
        self._generators: object = None
        self._specs: dict[str, HeldSpec] = {}
        self._shares: dict[str, HeldShare] = {}
        self._halves: dict[str, Tensor] = {}

    def find(self, name: str | None, spec: Spec, owner: Party | None) -> HeldSpec | None:
        """Say how an input is held, if one with these public facts is."""
        known = None if name is None else self._specs.get(name)
        if known is None or known.mask.holder != owner:
            return None
        facts = (known.shape, known.frac_bits, known.largest)
        return known if facts == (spec.shape, spec.frac_bits, spec.largest) else None

    def take(self, name: str, *, half: Tensor, clear: Tensor | None) -> HeldShare:
        """Return what I have of a value.

        Args:
            name: of the value.
            half: my half of it now.
            clear: the value itself, if it is my input.

        Raises:
            DataError: the value is not what it was.
        """
        share = self._shares[name]
        if share.clear is not None:
            is_same = clear is not None and torch.equal(clear, share.clear)
        else:
            known = self._halves.get(name)
            is_same = known is None or half is known or torch.equal(half, known)
        if not is_same:
            raise DataError(
                f"input {name!r} is not what it was when it was held; start a new session, or give "
                "the new values another name"
            )
        return share

    def keep(
        self,
        run: int,
        specs: tuple[tuple[str, HeldSpec], ...],
        shares: Mapping[str, HeldShare],
        halves: Mapping[str, Tensor],
    ) -> None:
        """Add what a run has held; its masks are found again by the number of the run.

        Args:
            run: its number.
            specs: the public facts about what was held, by name.
            shares: what I have of it, if I compute.
            halves: my halves of what is nobody's input.
        """
        for name, spec in specs:
            there = replace(spec, mask=replace(spec.mask, run=run))
            self._specs[name] = there
            if name in shares:
                self._shares[name] = replace(shares[name], spec=there)
            if name in halves:
                self._halves[name] = halves[name]

    def bind(self, session: Session) -> None:
        """Make sure that this is used in one session: the masks come from its generators."""
        if self._generators is not None and self._generators is not session.generators:
            raise ConfigError("a shelf belongs to one session; make another for this one")
        self._generators = session.generators
