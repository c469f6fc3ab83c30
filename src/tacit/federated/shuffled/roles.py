"""Client, shuffler and server of a shuffled round: state machines of bytes in and bytes out.

Every report is sealed to the server, all reports of a client together once more to the shuffler. So
whoever carries the messages, be it the server itself, sees who takes part and no report; the
shuffler sees who takes part and how many reports, and no value; the server sees values, and not
whose. If shuffler and server work together, what is left is the local guarantee.

Both envelopes are bound to the invitation, and the shuffler opens those of one invitation only: a
server that gave every client another key, to tell reports apart by the key that opens them, finds
them left out. And the receipt by which a client finds its reports is the shuffler's: a server that
could write it would leave reports out and see who misses them.
"""

import hashlib
import hmac
import struct
from dataclasses import replace
from typing import cast, final

import torch

from tacit.crypto import KeyPair, agree, derive, make_key_pair, seal, unseal
from tacit.dp import Bounded, clip
from tacit.errors import ConfigError, DisagreementError, FrameError, InputError, PartyError
from tacit.federated.config import RoundConfig, made_finite
from tacit.federated.contract import (
    HELPER,
    PUBLIC_BYTES,
    Aggregate,
    Offer,
    RunOver,
    Seat,
    VoidRound,
    kind_of,
    pack,
    records,
    unpack,
)
from tacit.federated.shuffled.plan import (
    METHODS,
    PAYLOAD_BYTES,
    Floats,
    ShuffledPlan,
    dummies,
    encode,
    estimate,
    new_session,
)
from tacit.ring import Prg

OPEN, BUNDLE, BUNDLES, RELEASED, RECEIPT, CONFIRMED, COMPLAINED = range(32, 39)
SHUFFLER = HELPER
"""The index under which messages go to the shuffler."""

BOX_OVERHEAD = PUBLIC_BYTES + 28
"""Of a sealed box: the public key that it was sealed under, a nonce and a tag."""
BOX_BYTES = PAYLOAD_BYTES + BOX_OVERHEAD
# To leave a report out unnoticed takes another with its digest: a second preimage, 2^128 tries.
DIGEST_BYTES = TAG_BYTES = _KEY_BYTES = 16
_PLAN = struct.Struct("<IIQdBIId16s32s")
_SAVED = 65
_NO_TAG = bytes(TAG_BYTES)
_NAME = "shuffler"


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
class ShuffledClient:
    """Reports once, then checks once that its reports arrived.

    Args:
        invitation: the server's; the caller has compared its plan with the config.
        shuffler: the shuffler's public key; from the job, not from the server.
        prg: where its randomness comes from.

    Guarantee: against a server that does not work with the shuffler, what the shuffle model gives
    for the honest clients of the round; against both together each report is locally ε0-private.
    Whatever receipts the server shows, the answer says one bit, which the shuffler alone decides.
    Cost: 2 messages; 77 bytes per report.
    """

    def __init__(self, invitation: bytes, *, shuffler: bytes, prg: Prg) -> None:
        self._plan, self._server = read_open(invitation)
        self._round = round_of(invitation)
        self._shuffler, self._prg = shuffler, prg
        self._key = b""  # that the shuffler vouches with, towards this client
        self._mine: list[bytes] = []

    def report(self, update: Bounded | None) -> bytes:
        """Write the reports about an update; None sends dummies.

        Raises:
            PartyError: asked a second time.
        """
        if self._mine:
            raise PartyError("server", "it asked a client to report a second time")
        if update is None:
            payloads = dummies(self._plan, self._prg)
        else:
            payloads = encode(self._plan, update, self._prg)
        boxes = [seal_box(self._server, one, associated=self._round) for one in payloads]
        self._mine = [_digest(box) for box in boxes]
        self._key = self._prg.bytes(_KEY_BYTES)
        inside = self._key + b"".join(boxes)
        return pack(BUNDLE, seal_box(self._shuffler, inside, associated=self._round))

    def confirm(self, message: bytes) -> bytes:
        """Say whether all reports of this client are on the shuffler's receipt; once.

        Raises:
            PartyError: asked again, or the receipt is not the shuffler's: whether reports are
                missing on it is not looked at.
        """
        body, tag = cast(list[bytes], unpack(message, RECEIPT, "bb", sender="server"))
        key, self._key = self._key, b""
        if not key:
            raise PartyError("server", "it asked a client to confirm without a report, or again")
        if not hmac.compare_digest(tag, receipt_tag(key, self._round, body)):
            raise PartyError("server", "its receipt is not one that the shuffler vouches for")
        arrived = set(records(body, DIGEST_BYTES, sender="server"))
        return pack(CONFIRMED if arrived.issuperset(self._mine) else COMPLAINED)

    def save(self) -> bytes:
        """Write the state for `load`."""
        return pack(_SAVED, self._key, b"".join(self._mine))

    def load(self, saved: bytes) -> None:
        """Go on from what `save` wrote."""
        key, mine = cast(list[bytes], unpack(saved, _SAVED, "bb", sender="this client"))
        self._key, self._mine = key, records(mine, DIGEST_BYTES, sender="this client")


@final
class ShuffledClientSide:
    """A `ShuffledClient` that knows what to answer."""

    def __init__(self, config: RoundConfig, seat: Seat, prg: Prg) -> None:
        self._config, self._shuffler, self._prg = config, seat.helper, prg
        self._client: ShuffledClient | None = None
        if seat.saved is not None:
            invitation, state = seat.saved
            self._client = self._make(invitation)
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

    def _report(self, message: bytes, offer: Offer) -> bytes:
        plan, _ = read_open(message)
        if self._client is not None:
            raise PartyError("server", "it invited this client a second time")
        if plan != replace(plan_from(self._config), session=plan.session):
            raise DisagreementError(
                "server", "its plan of the round is not the one that follows from the config"
            )
        self._client = self._make(message)
        values = made_finite(offer(), self._config).values
        return self._client.report(clip(torch.from_numpy(values), l2_bound=plan.l2_bound))

    def _make(self, invitation: bytes) -> ShuffledClient:
        return ShuffledClient(invitation, shuffler=self._shuffler, prg=self._prg)


@final
class Shuffler:
    """Opens bundles, forgets who sent them, and lets the reports go in random order.

    Every session is shuffled once: the same reports among another crowd would show whose are whose.
    Towards every client it vouches for one receipt, under a key that lay in the client's bundle.

    Guarantee: the order that comes out is uniform and independent of the one that came in; all
    reports were sealed for one invitation, so to one key of the server. It cannot tell clients from
    inventions of the server: who may take part is for the carrier of the messages to authenticate.
    Cost: one message in and one out; 77 bytes per report.
    """

    def __init__(self, mine: KeyPair, *, minimum: int, reports: int, prg: Prg) -> None:
        self._mine, self._minimum, self._reports, self._prg = mine, minimum, reports, prg
        self._seen: set[bytes] = set()

    @property
    def public(self) -> bytes:
        """The key that clients seal to; they take it from their job."""
        return self._mine.public

    def shuffle(self, message: bytes) -> bytes:
        """Shuffle what the clients sent.

        Raises:
            VoidRound: fewer clients than planned; nothing is let go.
            PartyError: asked for a session a second time.
        """
        invitation, body = cast(list[bytes], unpack(message, BUNDLES, "bb", sender="server"))
        plan = read_open(invitation)[0]
        session = plan.session
        if session in self._seen:
            raise PartyError("server", "it asked the shuffler to shuffle a round again")
        self._seen.add(session)
        # All bundles are of one length, or a client would be known by that of its own.
        size = _KEY_BYTES + self._reports * BOX_BYTES + BOX_OVERHEAD
        bundles = records(body, size, sender="server")
        if len(set(bundles)) < len(bundles):
            raise PartyError("server", "it gave the shuffler one bundle twice")
        name = round_of(invitation)
        opened = [self._open(bundle, name) for bundle in bundles]
        inside = [one[_KEY_BYTES:] for one in opened if one]
        # The clients' own number too: their bundles are bound to it, and a shuffler of two jobs
        # would else let few of one go by the number of the other.
        wanted = max(self._minimum, plan.minimum)
        if len(inside) < wanted:
            raise VoidRound(
                _NAME, f"{len(inside)} clients reported, at least {wanted} are shuffled"
            )
        boxes = records(b"".join(inside), BOX_BYTES, sender="a client")
        order = self._prg.permutation(len(boxes)).tolist()
        # One receipt for all, sorted: it tells no client, and not the server, whose a report is.
        receipt = write_receipt(boxes)
        tags = [receipt_tag(one[:_KEY_BYTES], name, receipt) if one else _NO_TAG for one in opened]
        return pack(RELEASED, b"".join(boxes[at] for at in order), b"".join(tags))

    def _open(self, bundle: bytes, name: bytes) -> bytes:
        try:
            return open_box(self._mine, bundle, associated=name)
        except InputError:
            return b""  # not sealed for this round: no client of it


@final
class ShuffledServer:
    """Collects bundles, passes them on, opens what comes back, and estimates the mean.

    Guarantee: a mean is given only if as many reports came back as were handed over; a client that
    misses one of its own ends the run.
    Cost: memory for the reports, not for the updates.
    """

    stages = ("report", "shuffle", "confirm")

    def __init__(self, plan: ShuffledPlan, mine: KeyPair) -> None:
        self._plan, self._mine = plan, mine
        self._invitation = open_message(plan, mine.public)
        self._stage = 0
        self._bundles: dict[int, bytes] = {}
        self._released: list[bytes] = []
        self._mean: Floats | None = None

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients that reported."""
        return tuple(sorted(self._bundles))

    def invite(self) -> dict[int, bytes]:
        """Write the first message to every client."""
        return dict.fromkeys(range(self._plan.clients), self._invitation)

    def accept(self, index: int, message: bytes) -> None:
        """Take an answer of this stage.

        Raises:
            PartyError: it is none; names the sender.
            RunOver: a client misses a report of its own.
        """
        name = _NAME if index == SHUFFLER else f"client {index}"
        stage = self.stages[self._stage]
        is_known = index == SHUFFLER or 0 <= index < self._plan.clients
        if not is_known or (index == SHUFFLER) != (stage == "shuffle"):
            raise DisagreementError(name, f"nothing is awaited from it in the stage {stage!r}")
        if stage == "report":
            (body,) = unpack(message, BUNDLE, "b", sender=name)
            size = _KEY_BYTES + self._plan.reports * BOX_BYTES + BOX_OVERHEAD
            if len(cast(bytes, body)) != size or index in self._bundles:
                raise FrameError(name, f"wanted one bundle of {size} bytes")
            self._bundles[index] = cast(bytes, body)
        elif stage == "shuffle":
            self._released = cast(list[bytes], unpack(message, RELEASED, "bb", sender=name))
        elif kind_of(message, sender=name) == COMPLAINED:
            raise RunOver(_NAME, f"{name} misses a report of its own: one of the two is not honest")
        else:
            unpack(message, CONFIRMED, "", sender=name)

    def close(self) -> dict[int, bytes]:
        """End the stage and write what goes out next.

        Raises:
            VoidRound: too few clients, or the shuffler did not give back what it got.
        """
        stage = self.stages[self._stage]
        self._stage = min(self._stage + 1, len(self.stages) - 1)
        if stage == "report":
            if len(self._bundles) < self._plan.minimum:
                raise VoidRound(
                    "server",
                    f"{len(self._bundles)} clients reported, the plan wants {self._plan.minimum}",
                )
            bodies = b"".join(self._bundles.values())
            return {SHUFFLER: pack(BUNDLES, self._invitation, bodies)}
        return self._receipts() if stage == "shuffle" else {}

    def complain(self, index: int, error: PartyError) -> None:
        """Void the round if the shuffler refused."""
        if index == SHUFFLER:
            raise VoidRound(error.party, error.reason) from error

    def aggregate(self) -> Aggregate:
        """Return the estimated mean."""
        return Aggregate(self.mean(), len(self._bundles), self.survivors)

    def mean(self) -> Floats:
        """Return the estimated mean update.

        Raises:
            VoidRound: the round is not over.
        """
        if self._mean is None:
            raise VoidRound("server", "the shuffler has not answered")
        return self._mean

    def _receipts(self) -> dict[int, bytes]:
        """Read what the shuffler returned, and pass on what it vouches for."""
        if not self._released:
            raise VoidRound(_NAME, "it did not answer")
        wanted = len(self._bundles) * self._plan.reports
        boxes = records(self._released[0], BOX_BYTES, sender=_NAME)
        tags = records(self._released[1], TAG_BYTES, sender=_NAME)
        if len(boxes) != wanted or len(tags) != len(self._bundles):
            raise VoidRound(
                _NAME, f"it was given {wanted} reports and returned {len(boxes)}, {len(tags)} tags"
            )
        name = round_of(self._invitation)
        try:
            opened = [open_box(self._mine, box, associated=name) for box in boxes]
        except InputError as error:
            raise VoidRound(_NAME, "it returned a report that does not open") from error
        self._mean, _ = estimate(self._plan, opened, clients=len(self._bundles))
        receipt = write_receipt(boxes)
        return {
            index: pack(RECEIPT, receipt, tag)
            for index, tag in zip(self._bundles, tags, strict=True)
        }


def session_of(message: bytes) -> bytes:
    """Read which session a shuffler is asked to shuffle."""
    invitation, _ = unpack(message, BUNDLES, "bb", sender="server")
    return read_open(cast(bytes, invitation))[0].session


def round_of(invitation: bytes) -> bytes:
    """Name a round by all that its invitation says: the plan, the session, the server's key."""
    return hashlib.sha256(b"tacit shuffled round" + invitation).digest()


def write_receipt(boxes: list[bytes]) -> bytes:
    """List the reports that were let go, in an order that says nothing."""
    return b"".join(sorted(_digest(box) for box in boxes))


def receipt_tag(key: bytes, name: bytes, receipt: bytes) -> bytes:
    """Vouch for a receipt towards the client that the key came from.

    Guarantee: nobody but that client and the shuffler can make the tag, if HMAC-SHA256 is a
    pseudorandom function.
    Cost: 16 bytes.
    """
    seen = hashlib.sha256(receipt).digest()
    return hmac.digest(key, b"tacit shuffled receipt" + name + seen, "sha256")[:TAG_BYTES]


def _digest(box: bytes) -> bytes:
    return hashlib.sha256(box).digest()[:DIGEST_BYTES]


def open_message(plan: ShuffledPlan, server: bytes) -> bytes:
    """Write the invitation to a round."""
    body = _PLAN.pack(
        plan.clients,
        plan.minimum,
        plan.dimension,
        plan.l2_bound,
        METHODS.index(plan.method),
        plan.reports,
        plan.steps,
        plan.local_epsilon,
        plan.session,
        server,
    )
    return pack(OPEN, body)


def read_open(message: bytes) -> tuple[ShuffledPlan, bytes]:
    """Read the invitation: the plan and the server's key."""
    (body,) = unpack(message, OPEN, "b", sender="server")
    if len(cast(bytes, body)) != _PLAN.size:
        raise FrameError("server", f"wanted a plan of {_PLAN.size} bytes")
    (clients, minimum, dimension, bound, method, reports, steps, epsilon, session, server) = (
        _PLAN.unpack(cast(bytes, body))
    )
    if method >= len(METHODS):
        raise FrameError("server", f"no method of reporting has the number {method}")
    plan = ShuffledPlan(
        clients=clients,
        minimum=minimum,
        dimension=dimension,
        l2_bound=bound,
        method=METHODS[method],
        reports=reports,
        steps=steps,
        local_epsilon=epsilon,
        session=session,
    )
    return plan, server


def seal_box(public: bytes, plaintext: bytes, *, associated: bytes) -> bytes:
    """Seal to the holder of a public key, under a key pair that is forgotten at once.

    Guarantee: without the private key nobody learns more than the length, if X25519 and AES-GCM
    hold; a box says nothing about who sealed it, and two boxes not whether one sender made them.
    Cost: 60 bytes more than the plaintext; two scalar multiplications.
    """
    # Both keys go into the derivation, as in HPKE (RFC 9180, 4.1). X25519 ignores the top bit of a
    # public key: a bundle with that bit turned would else open once more, as another client's.
    once = make_key_pair()
    key = derive(agree(once, public), context=b"tacit box" + once.public + public)
    return once.public + seal(key, plaintext, associated=associated)


def open_box(mine: KeyPair, box: bytes, *, associated: bytes) -> bytes:
    """Open what `seal_box` sealed.

    Raises:
        InputError: sealed to another key, for another purpose, or changed.
    """
    sender = box[:PUBLIC_BYTES]
    key = derive(agree(mine, sender), context=b"tacit box" + sender + mine.public)
    return unseal(key, box[PUBLIC_BYTES:], associated=associated)
