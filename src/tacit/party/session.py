"""Session: who I am, my links, the generators I share with each peer, my ledgers, my beliefs."""

import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from torch import Tensor

from tacit import ring
from tacit.crypto import derive
from tacit.errors import CheatingError, DisagreementError, FrameError, PartyError
from tacit.party.ledger import Fact, LeakLedger
from tacit.party.progress import Progress
from tacit.result import Cost, Phase
from tacit.transport import Frame, Link, LinkLimits, Meter

_DTYPES = {torch.uint8: "u8", torch.int32: "i32", torch.int64: "i64"}
_CONTRIBUTION_BYTES = 32
LARGEST_MESSAGE_BYTES = LinkLimits().max_frame_bytes
"""What a link carries in one message, unless a job sets other limits."""
_DIGEST_BYTES = 32


@dataclass(frozen=True, kw_only=True, eq=False)
class Session:
    """One party's end of a running job. Made by `open_session`."""

    me: str
    parties: tuple[str, ...]
    links: Mapping[str, Link]
    meter: Meter
    ledger: LeakLedger
    progress: Progress
    generators: Mapping[str, ring.Prg]
    own: ring.Prg = field(default_factory=ring.Prg.from_os, repr=False)
    """The generator that nobody else can run."""
    _runs: Iterator[int] = field(default_factory=count)
    _pairs: set[tuple[str, str]] = field(default_factory=set)
    _cheats: list[CheatingError] = field(default_factory=list)

    def suspect(self, first: str, second: str) -> None:
        """Note two parties that check each other: what one says of the other is hearsay."""
        self._pairs.add((first, second))

    def as_heard(self, error: PartyError) -> PartyError:
        """Say what this party may believe of an error that another told it.

        After a cheat the session is over at all parties: its keys are those of the tags, and every
        further run under them would be another guess at them.
        """
        for pair in self._pairs:
            error = as_heard(error, self.me, pair)
        if isinstance(error, CheatingError) and not self._cheats:
            self._cheats.append(error)
            for link in self.links.values():
                link.close(failure=(error.party, error.reason))
        return error

    def begin_run(self) -> int:
        """Number the next computation of this session, alike at every party.

        Two computations must not draw the same masks, so each puts its number into the labels
        under which it forks generators. The parties begin their computations in one order.

        Raises:
            CheatingError: there was a cheat in this session, which is over.
        """
        for cheat in self._cheats:
            reason = f"{cheat.reason}. The session is over; start all parties again"
            raise CheatingError(cheat.party, reason)
        return next(self._runs)

    @property
    def peers(self) -> tuple[str, ...]:
        """Return everyone but me, in the order of the job."""
        return tuple(name for name in self.parties if name != self.me)

    def shared(self, peer: str) -> ring.Prg:
        """Return the generator that only this peer and I can run.

        Guarantee: its key is derived from 32 secret bytes of each side, exchanged on the
        authenticated link; nobody else can predict it as long as one side's entropy is good.
        """
        return self.generators[peer]

    def send(self, to: str, tag: str, values: Tensor, *, phase: Phase = "online") -> None:
        """Send integers to a peer. The tensor's memory must not change afterwards."""
        frame = Frame(_DTYPES[values.dtype], tuple(values.shape), ring.to_bytes(values))
        self.links[to].send(tag, frame, phase=phase)

    def recv(
        self, sender: str, tag: str, shape: tuple[int, ...], *, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        """Receive integers of a known type and shape from a peer; anything else is refused."""
        frame = self.links[sender].recv(tag)
        wanted = _DTYPES[dtype]
        if frame.dtype != wanted or frame.shape != shape:
            raise FrameError(
                sender, f"{tag}: wanted {wanted}{shape}, got {frame.dtype}{frame.shape}"
            )
        return ring.from_bytes(frame.data, frame.dtype, frame.shape)

    def publish(
        self, fact: Fact, numbers: Sequence[int], *, to: Sequence[str] | None = None
    ) -> None:
        """Tell everyone, or some, a few public numbers, such as a shape, and write it down."""
        for peer in self.peers if to is None else to:
            if peer != self.me:
                self.send(peer, f"setup/{fact.tag}", torch.tensor(numbers), phase="setup")
        self.ledger.record(*fact.leaks(self.me, self.parties if to is None else to))

    def learn(self, owner: str, fact: Fact, *, to: Sequence[str] | None = None) -> tuple[int, ...]:
        """Receive the public numbers that their owner publishes, and write down who was told."""
        values = self.recv(owner, f"setup/{fact.tag}", (fact.count,))
        self.ledger.record(*fact.leaks(owner, self.parties if to is None else to))
        return tuple(int(value) for value in values)

    def agree(self, subject: str, digest: bytes) -> None:
        """Make sure that every party holds the same thing, by its SHA-256, or stop."""
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8)
        for peer in self.peers:
            self.send(peer, f"setup/{subject}", mine, phase="setup")
        for peer in self.peers:
            theirs = self.recv(peer, f"setup/{subject}", (_DIGEST_BYTES,), dtype=torch.uint8)
            if bytes(theirs.tolist()) != digest:
                raise DisagreementError(
                    peer,
                    f"has another {subject} than {self.me!r} "
                    f"(sha256 {bytes(theirs.tolist()).hex()[:16]}…, ours {digest.hex()[:16]}…); "
                    "start all parties with the same files and the same version of tacit",
                )

    def cost(self) -> Cost:
        """Return what my meter counted so far: sent, received, and the rounds of each phase."""
        return Cost(
            traffic=self.meter.traffic() + self.meter.arrivals(),
            offline_rounds=self.meter.rounds("offline"),
            online_rounds=self.meter.rounds("online"),
        )

    def finish(self) -> None:
        """Wait until every party has come to its end: only then is a result a result.

        Twice, so that a party that dies while it tells the others leaves none of them believing
        that all is well: nobody goes on before everybody has heard from everybody.
        """
        for subject in ("end", "commit"):
            self.agree(subject, hashlib.sha256(subject.encode()).digest())


def open_session(
    *,
    me: str,
    parties: tuple[str, ...],
    links: Mapping[str, Link],
    meter: Meter,
    progress: Progress,
    job_digest: bytes,
) -> Session:
    """Check that all peers run this job, and make a generator with each of them.

    Guarantee: see `Session.shared`. Cost: one exchange of 32 + 32 bytes with each peer.
    """
    session = Session(
        me=me,
        parties=parties,
        links=links,
        meter=meter,
        ledger=LeakLedger(),
        progress=progress,
        generators={},
    )
    session.agree("job", job_digest)
    return replace(session, generators=_pair_generators(session, job_digest))


def _pair_generators(session: Session, job_digest: bytes) -> dict[str, ring.Prg]:
    """Mix 32 secret bytes of each side into one generator per pair."""
    mine = {peer: os.urandom(_CONTRIBUTION_BYTES) for peer in session.peers}
    for peer, secret in mine.items():
        frame = torch.frombuffer(bytearray(secret), dtype=torch.uint8)
        session.send(peer, "setup/seed", frame, phase="setup")
    generators = {}
    for peer, secret in mine.items():
        received = session.recv(peer, "setup/seed", (_CONTRIBUTION_BYTES,), dtype=torch.uint8)
        theirs = bytes(received.tolist())
        if hmac.compare_digest(theirs, secret):
            raise DisagreementError(peer, "sent our own random bytes back; refusing its key")
        first, second = (secret, theirs) if session.me < peer else (theirs, secret)
        context = f"tacit pair generator {min(session.me, peer)} {max(session.me, peer)}".encode()
        key = derive(first + second, context=context, salt=job_digest, length=16)
        generators[peer] = ring.Prg(key)
    return generators


CHEATED = "cheated: "
"""How the reason begins that a party gives when it has caught another."""
OR_OWNER = " or an owner"
"""Follows the name of the other party where somebody who brings an input may have done it."""


def as_heard(error: PartyError, me: str, pair: tuple[str, str]) -> PartyError:
    """Say what is known after an accusation between two computing parties.

    That one of the two cheats: whoever cheats can accuse as well as whoever was cheated, so an
    accusation names two parties. Only the one that has checked tags itself knows which.
    """
    first, second = pair
    is_heard = type(error) is PartyError and error.reason.startswith(CHEATED)
    if is_heard and error.party in (f"{first}{OR_OWNER}", f"{second}{OR_OWNER}"):
        others = ", ".join(one for one in pair if one != me)
        return CheatingError(f"{others}{OR_OWNER}", error.reason)
    if is_heard and error.party not in pair and " or " not in error.party:
        others = " or ".join(one for one in (*pair, error.party) if one != me)
        return CheatingError(others, f"{error.party!r} is said to have {error.reason}")
    if not is_heard or error.party not in pair:
        return error
    accuser = error.said_by or (second if error.party == first else first)
    if me == error.party:
        return CheatingError(
            accuser, f"{CHEATED}it accuses this party, which follows the protocol; no result"
        )
    return CheatingError(
        f"{first} or {second}" if accuser in pair else f"{error.party} or {accuser}",
        f"{accuser!r} says that {error.party!r} {error.reason}. One of the two cheats, and this "
        "party cannot know which",
    )


def about_me(error: PartyError, me: str) -> PartyError:
    """Say what is known after another has said that I failed: who says so, and that I run.

    Who runs did not go away: what it sent has not arrived, or it stood still for a while.
    """
    if error.party != me or error.said_by is None:
        return error
    return PartyError(
        error.said_by,
        f"says that {me!r} failed ({error.reason}), while {me!r} runs; if it was not heard, see "
        "whether it stood still, or whether the link between the two carries everything, both ways",
    )
