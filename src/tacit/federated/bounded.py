"""Sums of updates whose clips two servers check on shares: the aggregator "bounded".

The protocol is `norm_check`'s; here are its two sides as the engines run them. The server of the
run gets a seed from every client; the words that belong to it are for a second server, the checker.
The local engine plays server, checker and dealer, each a party of its own with its own links.
"""

from typing import cast, final

import numpy as np
import torch
from torch import Tensor

from tacit.errors import ConfigError, DisagreementError, FrameError, PartyError
from tacit.federated.config import RoundConfig, clip_l2
from tacit.federated.contract import Aggregate, Offer, VoidRound, pack, unpack
from tacit.federated.norm_check import (
    SEED_BYTES,
    CheckedSum,
    NormCheck,
    choose_scale,
    share_update,
    sum_shares,
)
from tacit.mpc import Roles
from tacit.party import Meeting, Session, run_threads
from tacit.ring import Prg

OPEN, SHARED = 80, 81
SERVERS = Roles("server", "checker", "dealer")
_WORD = 8


def plan_check(config: RoundConfig) -> NormCheck:
    """Derive what the servers check; all who hold the same config find the same.

    Raises:
        ConfigError: there is no clip, or none that can be checked.
    """
    clip = config.mechanism.clip
    if clip is None:
        raise ConfigError("aggregator 'bounded' checks that updates are within the clip: set clip")
    return NormCheck(
        clients=tuple(f"client {index}" for index in range(config.clients)),
        roles=SERVERS,
        dimension=config.dimension,
        clip=clip,
        scale=choose_scale(config.dimension, clip),
        minimum=config.minimum,
    )


@final
class BoundedServerSide:
    """Server, checker and dealer of a round: `sum_shares` between them.

    Guarantee: that of `norm_check`.
    Cost: 2 messages a client; that of `norm_check` between the servers.
    """

    def __init__(self, config: RoundConfig) -> None:
        self._check = plan_check(config)
        self._shares: dict[str, tuple[Tensor, Tensor]] = {}
        self._found: CheckedSum | None = None

    def invite(self) -> dict[int, bytes]:
        """Ask everyone for shares of an update."""
        return dict.fromkeys(range(len(self._check.clients)), pack(OPEN))

    def accept(self, index: int, message: bytes) -> None:
        """Take the shares of an update.

        Raises:
            PartyError: they are not of that size, or a second time.
        """
        name, size = f"client {index}", self._check.dimension
        if name in self._shares or name not in self._check.clients:
            raise DisagreementError(name, "no update is awaited from it")
        seed, words = (
            bytes(cast(bytes, one)) for one in unpack(message, SHARED, "bb", sender=name)
        )
        if len(seed) != SEED_BYTES or len(words) != _WORD * size:
            raise FrameError(name, f"wanted a seed of {SEED_BYTES} bytes and {size} words")
        share = torch.from_numpy(np.frombuffer(words, "<i8").copy())
        self._shares[name] = Prg(seed).words((size,)), share

    def complain(self, index: int, error: PartyError) -> None:
        """Do without a client."""

    def close(self) -> dict[int, bytes]:
        """Check all updates on shares, and add up those within the clip."""
        if len(self._shares) < self._check.minimum:
            came, wanted = len(self._shares), self._check.minimum
            raise VoidRound("server", f"{came} updates arrived, the plan wants {wanted}")
        at = {SERVERS.first: 0, SERVERS.second: 1}

        def party(session: Session) -> CheckedSum | None:
            place = at.get(session.me, 0)
            own = {name: pair[place] for name, pair in self._shares.items()}
            return sum_shares(session, self._check, own)

        names = (*SERVERS.computing, SERVERS.dealer)
        meeting = Meeting(parties=names, job_digest=bytes(32))
        self._found = run_threads(dict.fromkeys(names, party), meeting)[SERVERS.first]
        return {}

    def aggregate(self) -> Aggregate:
        """Return the mean of those who counted, and name those who were left out."""
        found = self._found
        assert found is not None  # noqa: S101 - `close` has found it
        assert found.total is not None  # noqa: S101 - the first server has it
        names = self._check.clients
        survivors = tuple(index for index, name in enumerate(names) if name in found.counted)
        why = f"its update is longer than the clip of {self._check.clip:g}: left out"
        refused = tuple(PartyError(name, why) for name in found.refused)
        mean = np.asarray(found.total, np.float64) / len(survivors)
        return Aggregate(mean, len(survivors), survivors, refused)


@final
class BoundedClientSide:
    """Shares its clipped update between the two servers.

    Guarantee: neither server alone learns anything of it but the sum.
    Cost: 16 bytes and 8 per number.
    """

    def __init__(self, config: RoundConfig, prg: Prg) -> None:
        self._check, self._prg = plan_check(config), prg

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Send the shares."""
        unpack(message, OPEN, "", sender="server")
        values = clip_l2(offer().values, self._check.clip)
        seed, words = share_update(self._check, values, self._prg)
        return pack(SHARED, seed, words.numpy().astype("<i8").tobytes())

    def save(self) -> bytes:
        """Write nothing: there is one step."""
        return b""
