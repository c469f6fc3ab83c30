"""Shuffled aggregation as the engines run it: plan from the config, answer whatever comes."""

from dataclasses import replace
from typing import final

import torch

from tacit.crypto import KeyPair, make_key_pair
from tacit.dp import clip
from tacit.errors import ConfigError, DisagreementError, PartyError
from tacit.federated.config import RoundConfig, made_finite
from tacit.federated.contract import Aggregate, Offer, VoidRound, kind_of
from tacit.federated.shuffled.plan import ShuffledPlan, new_session
from tacit.federated.shuffled.roles import (
    OPEN,
    SHUFFLER,
    ShuffledClient,
    ShuffledServer,
    Shuffler,
    read_open,
)
from tacit.ring import Prg


def plan_from(config: RoundConfig) -> ShuffledPlan:
    """Derive the plan of a round; all who hold the same config find the same, but for the session.

    Raises:
        ConfigError: the mechanism is not one for the shuffle model.
    """
    mechanism = config.mechanism
    if mechanism.local_epsilon is None or mechanism.clip is None:
        raise ConfigError(
            f"aggregator 'shuffled' goes with privacy 'shuffle', got {mechanism.privacy.kind!r}"
        )
    return ShuffledPlan(
        clients=config.federated.clients,
        minimum=config.federated.minimum,
        dimension=config.dimension,
        l2_bound=mechanism.clip,
        method=mechanism.privacy.method,
        reports=mechanism.privacy.reports,
        steps=1,
        local_epsilon=mechanism.local_epsilon,
        session=new_session(),
    )


@final
class ShuffledServerSide:
    """A `ShuffledServer` with a key of its own for the round."""

    def __init__(self, config: RoundConfig) -> None:
        self._server = ShuffledServer(plan_from(config), make_key_pair())

    def invite(self) -> dict[int, bytes]:
        """Invite everyone."""
        return self._server.invite()

    def accept(self, index: int, message: bytes) -> None:
        """Take an answer of the current stage."""
        self._server.accept(index, message)

    def complain(self, index: int, error: PartyError) -> None:
        """Void the round if the shuffler refused."""
        if index == SHUFFLER:
            raise VoidRound(error.party, error.reason) from error

    def close(self) -> dict[int, bytes]:
        """End a stage."""
        return self._server.close()

    def aggregate(self) -> Aggregate:
        """Return the estimated mean."""
        survivors = self._server.survivors
        return Aggregate(self._server.mean(), len(survivors), survivors)


@final
class ShuffledClientSide:
    """A `ShuffledClient` that knows what to answer."""

    def __init__(
        self,
        config: RoundConfig,
        *,
        shuffler: bytes,
        prg: Prg,
        saved: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._config, self._shuffler, self._prg = config, shuffler, prg
        self._client: ShuffledClient | None = None
        self._invitation = b""
        if saved is not None:
            self._invitation, state = saved
            self._client = self._make(self._invitation)
            self._client.load(state)

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Report, or say whether the reports arrived."""
        if kind_of(message, sender="server") == OPEN:
            return self._report(message, offer)
        if self._client is None:
            raise PartyError("server", "it did not invite this client to the round")
        return self._client.confirm(message)

    def save(self) -> bytes:
        """Write the state."""
        return b"" if self._client is None else self._client.save()

    @property
    def invitation(self) -> bytes:
        """The invitation that a saved state goes with."""
        return self._invitation

    def _report(self, message: bytes, offer: Offer) -> bytes:
        plan, _ = read_open(message)
        if self._client is not None:
            raise PartyError("server", "it invited this client a second time")
        if plan != replace(plan_from(self._config), session=plan.session):
            raise DisagreementError(
                "server", "its plan of the round is not the one that follows from the config"
            )
        self._invitation = message
        self._client = self._make(message)
        values = made_finite(offer(), self._config).values
        return self._client.report(clip(torch.from_numpy(values), l2_bound=plan.l2_bound))

    def _make(self, invitation: bytes) -> ShuffledClient:
        return ShuffledClient(invitation, shuffler=self._shuffler, prg=self._prg)


def make_shuffler(config: RoundConfig, mine: KeyPair, prg: Prg) -> Shuffler:
    """Make a shuffler that holds to the config."""
    reports = config.spec.privacy.reports
    return Shuffler(mine, minimum=config.federated.minimum, reports=reports, prg=prg)
