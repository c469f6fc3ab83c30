"""Secure aggregation as the engines run it: plan from the config, answer whatever comes.

The words that clients add up, how rounds open and who survives are the same for `encrypted` and
`keyed`, which hide the words in another way: what they share stands last.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from typing import cast, final

import numpy as np

from tacit.errors import ConfigError, DisagreementError, FrameError, PartyError
from tacit.federated.config import RoundConfig, clip_l2, go_bare, made_finite
from tacit.federated.contract import Offer, Seat, Update, kind_of, pack, unpack
from tacit.federated.secagg.client import SecAggClient
from tacit.federated.secagg.graph import Neighbourhood, plan_neighbourhood, secrecy_bits
from tacit.federated.secagg.messages import (
    ATTESTED,
    DELIVERY,
    OPEN,
    ROSTER,
    SERVER,
    SURVIVORS,
    read_open,
)
from tacit.federated.secagg.plan import (
    NONCE_BYTES,
    SESSION_BYTES,
    SecAggPlan,
    Words,
    plan_secagg,
    quantise,
)
from tacit.federated.secagg.server import SecAggServer
from tacit.federated.spec import FederatedSpec, Federation
from tacit.result import Claim
from tacit.ring import Prg

TAILS = {"gaussian": 10.0, "binomial": 10.0, "laplace": 40.0}
"""Standard deviations of the noise of the sum that must not wrap.

Beyond 10 lie 2·exp(-50) < 2^-71 of a Gaussian, and no more of a binomial (Hoeffding); beyond 40 lie
exp(-40·√2) < 2^-81 of a Laplacian. A sum that does wrap is wrong, but as private: it is computed
from the noisy one.
"""
SAVED = 66
"""The kind of what a client of any sum saves."""
SUBJECT = "each client's update in a round, towards the server"
HIDDEN = "hidden in the sum of those who stayed"
LAST = (
    "whoever knows all other updates of a sum knows the last, and two rounds on like models, one "
    "of them without a client, differ by its update"
)
CHOSEN = (
    "clients given different models have no sum; but a server that chooses the model, and who is "
    "in which round, can still make one client or few rows stand out of sums: only noise, "
    "privacy 'central' or 'local', bounds that"
)
RUNS = "nodes choose the code that they run, and in how many runs: each is counted anew"
RANGE = "no proof of range: a client that lies can spoil the sum"
_SERVERS = {
    "curious": "the server follows the protocol and invents no clients",
    "malicious": (
        f"the server may do anything; the job names the clients' keys, and they are theirs; {RUNS}"
    ),
}
Tag = Callable[[SecAggPlan, Words], None]
"""Writes the tags of a client's words behind them."""


def plan_from(config: RoundConfig) -> SecAggPlan:
    """Derive the plan of a round; all who hold the same config find the same, but for the session.

    Raises:
        ConfigError: without a clip there is no bound on an update.
    """
    return plan_words(config, _around(config.federated))


def _around(fed: Federation) -> Neighbourhood:
    return plan_neighbourhood(
        fed.clients,
        minimum=fed.minimum,
        drop_rate=fed.drop_rate,
        colluding_share=fed.share_in_round,
        server=fed.server,
    )


def claims(spec: FederatedSpec) -> tuple[Claim, ...]:
    """Return what is promised about single updates."""
    fed = spec.federated
    is_chosen = fed.server == "malicious"
    whose = (
        f"the {len(fed.identities or ())} clients named" if is_chosen else "the clients of a round"
    )
    bits = secrecy_bits(
        _around(fed), fed.clients, minimum=fed.minimum, colluding_share=fed.share_in_round
    )
    graph = (
        ""
        if math.isinf(bits)
        else (
            f"; the ring of a list of clients fails with a probability of 2^-{math.floor(bits)}, "
            "whoever is silent, and with as many times that as lists were tried"
        )
    )
    assumptions = (
        _SERVERS[fed.server],
        f"at most {fed.colluding_share:.0%} of {whose} work with it; {LAST}",
        *([CHOSEN] if is_chosen else []),
        f"at most {fed.drop_rate:.0%} of the clients fall silent in a round; "
        "if more do, the round may be void",
        f"X25519, AES-128, SHA-256 and Ed25519 hold{graph}",
        RANGE,
    )
    return (Claim(subject=SUBJECT, guarantee=HIDDEN, assumptions=assumptions),)


def plan_words(config: RoundConfig, neighbourhood: Neighbourhood) -> SecAggPlan:
    """Derive how updates are written as whole numbers: the same for every way to add them up."""
    mechanism = config.mechanism
    if mechanism.clip is None:
        raise ConfigError("secure aggregation needs a bound on every update: set clip")
    scale, headroom = None, 0.0
    if mechanism.grid is not None:
        scale = mechanism.grid.scale
        tails = (
            TAILS[mechanism.grid.noise] * (config.federated.clients / mechanism.grid.parts) ** 0.5
        )
        headroom = tails * mechanism.grid.sigma
    units = (
        config.federated.clients
        * (mechanism.clip + headroom / config.federated.clients)
        * (scale or 1.0)
    )
    plan = plan_secagg(
        config.federated.clients,
        config.dimension,
        bound=mechanism.clip,
        neighbourhood=neighbourhood,
        minimum=config.federated.minimum,
        word_bytes=4 if scale is None or units < 2**30 else 5,
        scale=scale,
        headroom=headroom,
        model=config.agreed,
    )
    return replace(plan, tags=2) if config.federated.verified else plan


def check_model(plan: SecAggPlan, config: RoundConfig) -> None:
    """Refuse a round about another model than this client was given.

    A server that has all others train a model that learns nothing reads the one update that is left
    off the sum (Pasquini et al., CCS 2022). With the digest in the session, clients that were given
    different ones have no common key; nor have those that hold to different fed.

    Raises:
        DisagreementError: it is about another, or with other configs, another clip or other terms.
    """
    if plan.session[NONCE_BYTES:] != config.agreed:
        raise DisagreementError(
            SERVER,
            "its plan of the round is not the one that follows from this client's config, or the "
            "round is about another model, config or clip than it gave this client to train",
        )


def words_of(config: RoundConfig, plan: SecAggPlan, update: Update, prg: Prg) -> Words:
    """Clip an update, write it as whole numbers, and add this client's part of the noise.

    Guarantee: none by itself; the noise is that of the mechanism.
    Cost: 0 rounds.
    """
    update = made_finite(update, config)
    weight = min(update.weight, config.federated.largest_weight)
    values = clip_l2(update.values, config.mechanism.clip) * (
        weight / config.federated.largest_weight
    )
    grid = config.mechanism.grid
    noise = None if grid is None else grid.draw(values.size, prg)
    bare = go_bare(update, config.mechanism, prg)
    if noise is not None and bare is not None:
        noise = np.where(bare, 0, noise)
    return quantise(plan, values, weight=weight, noise=noise, prg=prg)


def make_server(config: RoundConfig) -> SecAggServer:
    """Make the server's side of a round."""
    return SecAggServer(plan_from(config), largest_weight=config.federated.largest_weight)


@final
class SecAggClientSide:
    """A `SecAggClient` that knows what to answer, and adds the noise that was promised."""

    def __init__(
        self, config: RoundConfig, seat: Seat, prg: Prg, *, tag: Tag | None = None
    ) -> None:
        self._config, self._seat, self._prg, self._tag = config, seat, prg, tag
        self._client: SecAggClient | None = None
        self._invitation = b""
        if seat.saved is not None:
            self._invitation, state = seat.saved
            plan = self._plan_of(self._invitation)
            known = config.federated.identities
            self._client = SecAggClient.load(state, plan, seat.index, known=known)

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
        """Write the state; see `SecAggClient.save`."""
        return b"" if self._client is None else self._client.save()

    def _begin(self, message: bytes) -> bytes:
        plan, index = self._plan_of(message), read_open(message)[1]
        if self._client is not None:
            raise PartyError(SERVER, "it invited this client a second time")
        expected = replace(plan_from(self._config), session=plan.session)
        if plan != expected or index != self._seat.index:
            raise DisagreementError(
                SERVER,
                "its plan of the round is not the one that follows from this client's config",
            )
        check_model(plan, self._config)
        self._invitation = message
        self._client = SecAggClient(
            plan,
            index,
            signing=self._seat.signing,
            prg=self._prg,
            known=self._config.federated.identities,
        )
        return self._client.advertise()

    def _words(self, offer: Offer) -> Words:
        plan = self._plan_of(self._invitation)
        words = words_of(self._config, plan, offer(), self._prg)
        if self._tag is not None:
            self._tag(plan, words)
        return words

    def _plan_of(self, invitation: bytes) -> SecAggPlan:
        # Whether there are tags is not for the server to say.
        return replace(read_open(invitation)[0], tags=2 if self._config.federated.verified else 0)


def plan_sum(config: RoundConfig) -> SecAggPlan:
    """Plan a sum of the words that `masked` adds up too, for a new session."""
    return plan_words(config, Neighbourhood(neighbours=0, threshold=0))


def company_of(clients: int, minimum: int, keys: frozenset[bytes] | None) -> bytes:
    """Return the digest of who may be in a sum, and how few.

    All of that is in a session too, beside the model. An authority, who knows no model, cannot read
    it there, and one that serves two jobs would hold clients of one to the terms of the other.
    """
    facts = clients, minimum, None if keys is None else sorted(keys)
    return hashlib.sha256(b"tacit company" + repr(facts).encode()).digest()


def open_sum(kind: int, plan: SecAggPlan, keys: frozenset[bytes] | None) -> bytes:
    """Invite to a round: its session, in which is all that all must agree on, and its words."""
    company = company_of(plan.clients, plan.minimum, keys)
    return pack(kind, plan.session, plan.length, plan.word_bytes, company)


def read_sum(message: bytes, kind: int, config: RoundConfig) -> SecAggPlan:
    """Read an invitation.

    Raises:
        DisagreementError: the server's plan is another than that of this config.
    """
    plan = replace(plan_sum(config), session=session_of(message, kind))
    check_model(plan, config)
    if message != open_sum(kind, plan, config.federated.identities):
        raise DisagreementError(
            SERVER, "its plan of the round is not the one that follows from this client's config"
        )
    return plan


def session_of(message: bytes, kind: int) -> bytes:
    """Read the session of an invitation.

    Raises:
        FrameError: it is none.
    """
    return read_words(message, kind)[0]


def read_words(message: bytes, kind: int) -> tuple[bytes, int, int, bytes]:
    """Read the session of an invitation, how many words it is about, their bytes, and the company.

    Raises:
        FrameError: it is none.
    """
    session, length, width, company = unpack(message, kind, "biib", sender=SERVER)
    session = cast(bytes, session)
    if len(session) != SESSION_BYTES:
        raise FrameError(SERVER, "its invitation has a session of another length")
    return session, cast(int, length), cast(int, width), cast(bytes, company)


def write_survivors(survivors: tuple[int, ...]) -> bytes:
    """Write who is in the sum."""
    return np.array(survivors, "<u4").tobytes()


def read_survivors(body: bytes, config: RoundConfig, mine: int) -> tuple[int, ...]:
    """Read who is said to be in the sum.

    Raises:
        PartyError: fewer than may be added up, or not this client.
    """
    if len(body) % 4:
        raise FrameError(SERVER, "its list of survivors is cut off")
    found = tuple(np.frombuffer(body, "<u4").tolist())
    if len(found) < config.federated.minimum:
        raise PartyError(
            SERVER,
            f"it shows a sum of {len(found)} clients, the config wants {config.federated.minimum}",
        )
    if (
        list(found) != sorted(set(found))
        or found[-1] >= config.federated.clients
        or mine not in found
    ):
        raise PartyError(SERVER, "its list of survivors has a stranger, one twice, or not me")
    return found
