"""Masked aggregation as the engines run it: plan from the terms, answer whatever comes."""

from dataclasses import replace
from typing import final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import ConfigError, DisagreementError, PartyError
from tacit.learn.federated.contract import Aggregate, Offer
from tacit.learn.federated.masked.client import MaskedClient
from tacit.learn.federated.masked.graph import plan_neighbourhood
from tacit.learn.federated.masked.messages import (
    ATTESTED,
    DELIVERY,
    OPEN,
    ROSTER,
    SERVER,
    SURVIVORS,
    read_open,
)
from tacit.learn.federated.masked.plan import MaskedPlan, dequantise, plan_masked, quantise
from tacit.learn.federated.masked.server import MaskedServer
from tacit.learn.federated.packing import kind_of
from tacit.learn.federated.terms import Terms, clip_l2, go_bare, made_finite
from tacit.ring import Prg

_TAILS = {"gaussian": 10.0, "binomial": 10.0, "laplace": 40.0}
"""Standard deviations of the noise of the sum that must not wrap."""


def plan_from(terms: Terms) -> MaskedPlan:
    """Derive the plan of a round; all who hold the same terms find the same, but for the session.

    Raises:
        ConfigError: without a clip there is no bound on an update.
    """
    promise = terms.promise
    if promise.clip is None:
        raise ConfigError("masked sums need a bound on every update: set clip")
    neighbourhood = plan_neighbourhood(
        terms.clients,
        drop_rate=terms.drop_rate,
        colluding_share=terms.colluding_share,
    )
    scale, headroom = None, 0.0
    if promise.grid is not None:
        scale = promise.grid.scale
        tails = _TAILS[promise.grid.noise] * (terms.clients / promise.grid.parts) ** 0.5
        headroom = tails * promise.grid.sigma
    units = terms.clients * (promise.clip + headroom / terms.clients) * (scale or 1.0)
    return plan_masked(
        terms.clients,
        terms.dimension,
        bound=promise.clip,
        neighbourhood=neighbourhood,
        minimum=terms.minimum,
        word_bytes=4 if scale is None or units < 2**30 else 5,
        scale=scale,
        headroom=headroom,
    )


@final
class MaskedServerSide:
    """A `MaskedServer` that gives back numbers."""

    def __init__(self, terms: Terms) -> None:
        self._terms, self._plan = terms, plan_from(terms)
        self._server = MaskedServer(self._plan)

    def invite(self) -> dict[int, bytes]:
        """Invite everyone to the round."""
        return self._server.invite()

    def accept(self, index: int, message: bytes) -> None:
        """Take an answer of the current stage."""
        self._server.accept(index, message)

    def complain(self, index: int, error: PartyError) -> None:
        """Do without a client: it counts as silent from here on."""

    def close(self) -> dict[int, bytes]:
        """End a stage."""
        return self._server.close()

    def aggregate(self) -> Aggregate:
        """Return the mean of those who stayed."""
        total, weight = dequantise(self._plan, self._server.total())
        mean = total * (self._terms.largest_weight / max(weight, 1))
        return Aggregate(mean, weight, self._server.survivors)


@final
class MaskedClientSide:
    """A `MaskedClient` that knows what to answer, and adds the noise that was promised."""

    def __init__(
        self,
        terms: Terms,
        index: int,
        *,
        signing: Ed25519PrivateKey,
        prg: Prg,
        saved: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._terms, self._index, self._prg = terms, index, prg
        self._signing = signing
        self._client: MaskedClient | None = None
        self._invitation = b""
        if saved is not None:
            self._invitation, state = saved
            plan, _ = read_open(self._invitation)
            self._client = MaskedClient.load(state, plan, index, known=terms.keys)

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Do the step that the server's message asks for."""
        kind = kind_of(message, sender=SERVER)
        if kind == OPEN:
            return self._begin(message)
        if self._client is None:
            raise PartyError(SERVER, "it did not invite this client to the round")
        if kind == ROSTER:
            return self._client.share(message)
        if kind == DELIVERY:
            return self._client.mask(message, self._words(offer))
        if kind == SURVIVORS:
            return self._client.attest(message)
        if kind == ATTESTED:
            return self._client.unmask(message)
        raise PartyError(SERVER, f"it sent a message of kind {kind}, which no step of a round has")

    def save(self) -> bytes:
        """Write the state; see `MaskedClient.save`."""
        return b"" if self._client is None else self._client.save()

    @property
    def invitation(self) -> bytes:
        """The invitation that a saved state goes with."""
        return self._invitation

    def _begin(self, message: bytes) -> bytes:
        plan, index = read_open(message)
        if self._client is not None:
            raise PartyError(SERVER, "it invited this client a second time")
        expected = replace(plan_from(self._terms), session=plan.session)
        if plan != expected or index != self._index:
            raise DisagreementError(
                SERVER, "its plan of the round is not the one that follows from this client's terms"
            )
        self._invitation = message
        self._client = MaskedClient(
            plan, index, signing=self._signing, prg=self._prg, known=self._terms.keys
        )
        return self._client.advertise()

    def _words(self, offer: Offer) -> "np.ndarray":
        terms = self._terms
        update = made_finite(offer(), terms.promise)
        weight = min(update.weight, terms.largest_weight)
        values = clip_l2(update.values, terms.promise.clip) * (weight / terms.largest_weight)
        grid = terms.promise.grid
        noise = None if grid is None else grid.draw(values.size, self._prg)
        bare = go_bare(update, terms.promise, self._prg)
        if noise is not None and bare is not None:
            noise = np.where(bare, 0, noise)
        plan = read_open(self._invitation)[0]
        return quantise(plan, values, weight=weight, noise=noise, prg=self._prg)
