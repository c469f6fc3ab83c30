"""A sum of updates none of which can be longer than its clip, whatever its client does.

Secure aggregation hides updates, and so it hides a poisoned one. Here every client shares its
update between two servers, which check its length on shares (with randomness of a dealer) before
anything is added up. As Prio and PINE, with the servers' own random combinations against values
that wrap around.

Guarantee: clients may do anything. Whoever's update is longer than the clip is left out by name,
except with probability 2^-40 for each client; an honest one never is. The servers and the dealer
follow the protocol (are semi-honest) and do not pool: then each learns who is left out, and the
first server the sum of the others. There is no guarantee against servers that are malicious.
Cost: a client sends 8 bytes per number and 16 bytes; the servers send each other 16 bytes per
number and client, and the dealer 8; see `docs/explanation/secure-aggregation.md`.

Why it holds. Words are read modulo 2^63. (1) A combination s = Σ r·u with fresh random bits r,
drawn after the shares are fixed: flipping the bit of one number moves s by that number; if the
number is beyond ±2h, then s and its neighbour are not both within ±h, so each combination is caught
with probability 1/2 at least, and 40 of them with 1 - 2^-40. An honest update has |s| <= Σ|u| <=
√d · clip = h, always, as it is rounded towards zero. (2) With every number within ±2h, squares of a
block add up to less than 2^62: they do not wrap, and are compared with the clip exactly; then their
sum is.

`BoundedServerSide` and `BoundedClientSide` are its two sides as the engines run them. The server of
the run gets a seed from every client; the words that belong to it are for a second server, the
checker. The local engine plays server, checker and dealer, each a party of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt, log2
from typing import Any, cast, final

import numpy as np
import torch
from torch import Tensor

from tacit import ring
from tacit.errors import ConfigError, DataError, DisagreementError, FrameError, PartyError
from tacit.federated.config import RoundConfig, clip_l2
from tacit.federated.contract import (
    Aggregate,
    Floats,
    Offer,
    Seat,
    VoidRound,
    pack,
    unpack,
)
from tacit.federated.secagg.sides import LAST, SUBJECT
from tacit.federated.spec import FederatedSpec
from tacit.mpc import Plan, Roles, Share, compute, find_protocol, make_plan, serve
from tacit.mpc.share import Spec
from tacit.party import Fact, Meeting, Session, run_threads
from tacit.result import Claim, Leak
from tacit.ring import Prg

COMBINATIONS = 40
_READ_BITS = 63  # what a comparison of 62 bits and a sign sees of a word
SEED_BYTES = 16
_WHY = "both servers must add up the same"
CLIENTS = Fact(tag="clients", count=1, what="how many updates are checked", why=_WHY)
_LARGEST_CLIP = 1 << 24  # its square is a whole number that a double holds
_MOST_ROOT = 16  # √ of how many blocks of squares a chosen scale may lead to
_WITHIN = 1 - 2.0**-30  # a norm that was computed in doubles may be a little less than it is


@dataclass(frozen=True, kw_only=True)
class NormCheck:
    """What all sides agree on.

    Attributes:
        clients: who gives an update.
        roles: the two servers, the first of which gets the sum, and the dealer.
        dimension: numbers in an update.
        clip: largest Euclidean norm of an update.
        scale: whole units per 1.0; updates are rounded to them, towards zero.
        minimum: fewest clients whose sum may be shown.
    """

    clients: tuple[str, ...]
    roles: Roles
    dimension: int
    clip: float
    scale: float
    minimum: int = 2

    def __post_init__(self) -> None:
        if self.dimension < 1 or not 2 <= self.minimum <= len(self.clients):
            raise ConfigError(
                f"wanted an update of 1 number or more and 2 to {len(self.clients)} clients whose "
                f"sum may be shown, got {self.dimension} and {self.minimum}"
            )
        if not 1 <= self.longest <= _LARGEST_CLIP or self.block < 1:
            raise ConfigError(
                f"a clip of {self.clip:g} is {self.longest:,} units at scale {self.scale:g}, and "
                f"squares of {self.dimension:,} numbers would wrap around; take a smaller scale"
            )

    @property
    def most(self) -> int:
        """The squared norm that is allowed, in units: no more than the clip, as no update grows.

        Room for numbers that are rounded up would be √d / 2 units: for millions of numbers, whose
        units are coarse, that is longer than the clip itself.
        """
        return int((Fraction(self.clip) * Fraction(self.scale)) ** 2)

    @property
    def longest(self) -> int:
        """The norm that is allowed, in whole units."""
        return isqrt(self.most)

    @property
    def half_range(self) -> int:
        """How large a combination of an honest update can be."""
        return isqrt(self.dimension * self.most) + 1

    @property
    def block(self) -> int:
        """How many numbers have squares that add up without wrapping."""
        return min(self.dimension, ((1 << 62) - 1) // (2 * self.half_range) ** 2)

    @property
    def blocks(self) -> int:
        """How many such blocks there are."""
        return -(-self.dimension // self.block)

    def spec_of_sums(self, count: int) -> Spec:
        """State what is compared: whoever cheats breaks the bound, and then 63 bits are seen."""
        return Spec(shape=(count, COMBINATIONS), frac_bits=0, largest=1 << 61)

    def spec_of_updates(self, count: int) -> Spec:
        """State what is squared; it holds once combinations have been compared."""
        shape = (count, self.blocks, self.block)
        return Spec(shape=shape, frac_bits=0, largest=2 * self.half_range)

    def plan(self, count: int) -> Plan:
        """Work out the check of so many clients."""
        protocol = find_protocol("sealed")
        return make_plan(lambda ops: self.check(ops, count), protocol, self.roles, frac_bits=0)

    def check(self, ops: Any, count: int) -> Tensor | None:
        """Tell, on shares, whose update is no longer than the clip."""
        half, most = float(self.half_range), float(self.most)
        sums = _resume(ops, "sums", self.spec_of_sums(count))
        inside = [
            ops.indicate(ops.shift(sums, half)),
            ops.indicate(ops.shift(ops.scale(sums, -1.0), half)),
        ]
        words = _resume(ops, "updates", self.spec_of_updates(count))
        norms = ops.sum(ops.square(words), dim=2)
        inside.append(ops.indicate(ops.shift(ops.scale(norms, -1.0), most)))
        total = ops.sum(ops.restate(norms, bound=most), dim=1)
        whole = ops.indicate(ops.shift(ops.scale(total, -1.0), most))
        passed = whole
        for flags in inside:
            passed = ops.add(passed, ops.sum(flags, dim=1))
        wanted = 2 * COMBINATIONS + self.blocks + 1
        answer = ops.indicate(ops.shift(passed, -float(wanted)))
        found: Tensor | None = ops.open(
            answer,
            to=self.roles.computing,
            what="whose update is longer than the clip",
            why="such updates are left out",
        )
        return found


def _resume(ops: Any, name: str, spec: Spec) -> Any:
    return ops.resume(name, shape=spec.shape, bound=spec.bound, frac_bits=0)


def choose_scale(dimension: int, clip: float) -> float:
    """Choose the finest units, by powers of two, with which a check has few blocks of squares."""
    largest = min(_LARGEST_CLIP, _MOST_ROOT * (1 << 30) // dimension)
    return 2.0 ** int(log2(max(2.0, largest) / clip) // 1)


@dataclass(frozen=True, eq=False)
class CheckedSum:
    """What came out: the sum, for the first server; and who was left out, for both."""

    total: Floats | None
    counted: tuple[str, ...]
    refused: tuple[str, ...]
    missing: tuple[str, ...]


def send_update(session: Session, check: NormCheck, values: Floats, prg: Prg) -> None:
    """Share an update between the two servers, as one of the clients.

    Raises:
        DataError: another length, not finite, or longer than the clip.
    """
    if values.shape != (check.dimension,) or not np.isfinite(values).all():
        raise DataError(f"wanted {check.dimension} finite numbers, got shape {values.shape}")
    if float(np.linalg.norm(values)) > check.clip:
        raise DataError(f"the update is longer than {check.clip:g}: clip it first")
    seed, words = share_update(check, values, prg)
    first, second = check.roles.computing
    session.send(first, "update/seed", torch.frombuffer(bytearray(seed), dtype=torch.uint8))
    session.send(second, "update/words", words)


def share_update(check: NormCheck, values: Floats, prg: Prg) -> tuple[bytes, Tensor]:
    """Share an update within the clip: a seed for the first server, words for the second."""
    words = torch.from_numpy(np.trunc(values * (check.scale * _WITHIN)).astype(np.int64))
    seed = prg.bytes(SEED_BYTES)
    return seed, words - Prg(seed).words((check.dimension,))


def sum_checked(session: Session, check: NormCheck) -> CheckedSum | None:
    """Take the servers' or the dealer's part; None for the dealer.

    Raises:
        VoidRound: fewer clients are left than the check wants.
    """
    return sum_shares(session, check, _receive(session, check))


def sum_shares(
    session: Session, check: NormCheck, shares: Mapping[str, Tensor]
) -> CheckedSum | None:
    """Do as `sum_checked` with a server's shares that have come already, by client.

    Raises:
        VoidRound: fewer clients are left than the check wants.
    """
    roles = check.roles
    servers = replace(session, parties=(*roles.computing, roles.dealer))
    number = session.begin_run()  # other coins in every round of a session
    if session.me == roles.dealer:
        count = servers.learn(roles.first, CLIENTS, to=(roles.dealer,))[0]
        if not 1 <= count <= len(check.clients):
            raise DisagreementError(roles.first, f"announced {count} clients")
        serve(servers, check.plan(count), inputs={})
        return None
    present = _agree_on_clients(servers, check, tuple(shares))
    missing = tuple(name for name in check.clients if name not in present)
    if len(present) < check.minimum:
        raise VoidRound("server", f"{len(present)} updates came, wanted {check.minimum}")
    mine = torch.stack([shares[name] for name in present])
    if session.me == roles.first:
        servers.publish(CLIENTS, (len(present),), to=(roles.dealer,))
    verdicts = _check(servers, check, mine, number)
    counted = tuple(name for name, is_good in zip(present, verdicts, strict=True) if is_good)
    refused = tuple(name for name in present if name not in counted)
    if len(counted) < check.minimum:
        raise VoidRound(
            ", ".join(refused) or "server",
            f"{len(counted)} updates are within the clip, wanted {check.minimum}",
        )
    total = _open_sum(servers, check, mine[[present.index(name) for name in counted]].sum(dim=0))
    return CheckedSum(total, counted, refused, missing)


def _receive(session: Session, check: NormCheck) -> dict[str, Tensor]:
    """Take my share of every update that comes; who is silent or sends anything else is missing."""
    found: dict[str, Tensor] = {}
    for name in check.clients if session.me != check.roles.dealer else ():
        try:
            if session.me == check.roles.first:
                seed = session.recv(name, "update/seed", (SEED_BYTES,), dtype=torch.uint8)
                found[name] = Prg(seed.numpy().tobytes()).words((check.dimension,))
            else:
                found[name] = session.recv(name, "update/words", (check.dimension,))
        except PartyError:
            continue
    return found


def _agree_on_clients(session: Session, check: NormCheck, mine: tuple[str, ...]) -> tuple[str, ...]:
    """Keep the clients whose shares both servers have."""
    flags, servers = [int(name in mine) for name in check.clients], check.roles.computing
    fact = Fact(tag="present", count=len(flags), what="whose updates reached {owner}", why=_WHY)
    session.publish(fact, flags, to=servers)
    (other,) = (name for name in servers if name != session.me)
    theirs = session.learn(other, fact, to=servers)
    return tuple(
        name for name, *is_here in zip(check.clients, flags, theirs, strict=True) if all(is_here)
    )


def _check(session: Session, check: NormCheck, mine: Tensor, number: int) -> list[bool]:
    count = len(mine)
    # The servers' own generator, from here on: no client could know these bits when it shared.
    (other,) = (name for name in check.roles.computing if name != session.me)
    coins = session.shared(other).fork(f"norm check {number}")
    bits = coins.bits((check.dimension, COMBINATIONS))
    sums = ring.matmul(mine, bits.to(torch.int64))
    padding = check.blocks * check.block - check.dimension
    padded = torch.nn.functional.pad(mine, (0, padding)).reshape(count, check.blocks, check.block)
    kept = {
        "sums": Share(sums, check.spec_of_sums(count)),
        "updates": Share(padded, check.spec_of_updates(count)),
    }
    plan = check.plan(count)
    opened = compute(session, plan, lambda ops: check.check(ops, count), inputs={}, kept=kept)
    assert opened is not None  # noqa: S101 - it is opened to both servers
    return [bool(one) for one in opened.reshape(-1).tolist()]


def _open_sum(session: Session, check: NormCheck, share: Tensor) -> Floats | None:
    roles = check.roles
    leak = Leak(
        to=roles.first,
        what="the sum of the updates within the clip",
        why="the declared result",
        kind="output",
        elements=check.dimension,
    )
    session.ledger.record(leak)
    if session.me == roles.second:
        session.send(roles.first, "sum", share)
        return None
    total = share + session.recv(roles.second, "sum", (check.dimension,))
    spare = 64 - _READ_BITS
    signed = torch.bitwise_left_shift(total, spare) >> spare
    return signed.numpy().astype(np.float64) / check.scale


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
        clients=tuple(f"client {index}" for index in range(config.federated.clients)),
        roles=SERVERS,
        dimension=config.dimension,
        clip=clip,
        scale=choose_scale(config.dimension, clip),
        minimum=config.federated.minimum,
    )


def claims(spec: FederatedSpec) -> tuple[Claim, ...]:
    """Return what is promised about single updates, and about their lengths."""
    who = (
        "semi-honest: server, checker and dealer follow the protocol and pool with nobody; they "
        "are three parties, which a simulation plays itself"
    )
    return (
        Claim(
            subject=SUBJECT,
            guarantee="hidden in the sum of those within the clip, but for whether it is",
            assumptions=(who, LAST, "AES-128 holds"),
        ),
        Claim(
            subject="the sum of a round, against clients",
            guarantee="no update longer than the clip counts, but with probability 2^-40 each",
            assumptions=(
                f"malicious: clients may do anything. {who[0].upper()}{who[1:]}",
                f"an update within the clip of {spec.privacy.clip:g} may still be poisoned",
            ),
        ),
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

    def __init__(self, config: RoundConfig, seat: Seat, prg: Prg) -> None:
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
