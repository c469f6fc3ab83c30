"""How rounds of `encrypted` and `keyed` are opened; the words that are added are `masked`'s."""

import hashlib
from dataclasses import replace
from typing import cast

import numpy as np

from tacit.errors import DisagreementError, FrameError, PartyError
from tacit.federated.config import RoundConfig
from tacit.federated.contract import pack, unpack
from tacit.federated.secagg.graph import Neighbourhood
from tacit.federated.secagg.plan import SESSION_BYTES, SecAggPlan
from tacit.federated.secagg.sides import check_model, plan_words

SERVER = "server"
SAVED = 66
_NOBODY = Neighbourhood(neighbours=0, threshold=0)


def plan_sum(config: RoundConfig) -> SecAggPlan:
    """Plan a sum of the words that `masked` adds up too, for a new session."""
    return plan_words(config, _NOBODY)


def company_of(clients: int, minimum: int, keys: frozenset[bytes] | None) -> bytes:
    """Return the digest of who may be in a sum, and how few.

    All of that is in a session too, beside the model. An authority, who knows no model, cannot read
    it there, and one that serves two jobs would hold clients of one to the terms of the other.
    """
    facts = clients, minimum, None if keys is None else sorted(keys)
    return hashlib.sha256(b"tacit company" + repr(facts).encode()).digest()


def open_message(kind: int, plan: SecAggPlan, keys: frozenset[bytes] | None) -> bytes:
    """Invite to a round: its session, in which is all that all must agree on, and its words."""
    company = company_of(plan.clients, plan.minimum, keys)
    return pack(kind, plan.session, plan.length, plan.word_bytes, company)


def read_open(message: bytes, kind: int, config: RoundConfig) -> SecAggPlan:
    """Read an invitation.

    Raises:
        DisagreementError: the server's plan is another than that of this config.
    """
    plan = replace(plan_sum(config), session=session_of(message, kind))
    check_model(plan, config)
    if message != open_message(kind, plan, config.keys):
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
    if len(found) < config.minimum:
        raise PartyError(
            SERVER, f"it shows a sum of {len(found)} clients, the config wants {config.minimum}"
        )
    if list(found) != sorted(set(found)) or found[-1] >= config.clients or mine not in found:
        raise PartyError(SERVER, "its list of survivors has a stranger, one twice, or not me")
    return found
