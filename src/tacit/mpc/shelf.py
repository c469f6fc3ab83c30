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
    `serve`. Only inputs of P0 and P1 are kept: their owner can see that they have not changed.

    Guarantee: that of `Hold`: a mask is drawn in one run and masks one input for ever.
    """

    def __init__(self) -> None:
        self._session: Session | None = None
        self._specs: dict[str, HeldSpec] = {}
        self._shares: dict[str, HeldShare] = {}

    def find(self, name: str | None, spec: Spec, owner: Party | None) -> HeldSpec | None:
        """Say how an input is held, if one with these public facts is."""
        known = None if name is None else self._specs.get(name)
        if known is None or owner is None or known.mask.holder != owner:
            return None
        facts = (known.shape, known.frac_bits, known.largest)
        return known if facts == (spec.shape, spec.frac_bits, spec.largest) else None

    def take(self, name: str, clear: Tensor | None) -> HeldShare:
        """Return what I have of an input; ``clear`` is the input itself, if it is mine."""
        share = self._shares[name]
        if share.clear is not None and (clear is None or not torch.equal(clear, share.clear)):
            raise DataError(
                f"input {name!r} is not what it was when it was held; start a new session, or give "
                "the new values another name"
            )
        return share

    def keep(
        self, run: int, specs: tuple[tuple[str, HeldSpec], ...], shares: Mapping[str, HeldShare]
    ) -> None:
        """Add what a run has held; its masks are found again by the number of the run."""
        for name, spec in specs:
            if spec.mask.holder is None:
                continue
            there = replace(spec, mask=replace(spec.mask, run=run))
            self._specs[name] = there
            if name in shares:
                self._shares[name] = replace(shares[name], spec=there)

    def bind(self, session: Session) -> None:
        """Make sure that this is used in one session: the masks come from its generators."""
        if self._session is not None and self._session is not session:
            raise ConfigError("a shelf belongs to one session; make another for this one")
        self._session = session
