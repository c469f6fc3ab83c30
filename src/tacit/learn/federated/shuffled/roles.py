"""Client, shuffler and server of a shuffled round: state machines of bytes in and bytes out.

Every report is sealed to the server, all reports of a client together once more to the shuffler. So
whoever carries the messages, be it the server itself, sees who takes part and no report; the
shuffler sees who takes part and how many reports, and no value; the server sees values, and not
whose. If shuffler and server work together, what is left is the local guarantee.
"""

import struct
from typing import cast, final

from tacit.crypto import KeyPair
from tacit.dp import Bounded
from tacit.errors import DisagreementError, FrameError, InputError, PartyError
from tacit.learn.federated.packing import VoidRound, pack, records, unpack
from tacit.learn.federated.shuffled.box import BOX_OVERHEAD, open_box, seal_box
from tacit.learn.federated.shuffled.plan import (
    METHODS,
    PAYLOAD_BYTES,
    SESSION_BYTES,
    Floats,
    ShuffledPlan,
    dummies,
    encode,
    estimate,
)
from tacit.ring import Prg

OPEN, BUNDLE, BUNDLES, RELEASED, RECEIPT, CONFIRMED = range(32, 38)
SHUFFLER = -1
"""The index under which messages go to the shuffler."""

TAG_BYTES = 8
BOX_BYTES = TAG_BYTES + PAYLOAD_BYTES + BOX_OVERHEAD
_PLAN = struct.Struct("<IIQdBIId16s32s")
_NAME = "shuffler"


@final
class ShuffledClient:
    """Reports once, then checks that its reports arrived.

    Args:
        plan: what the client itself holds to be agreed.
        server: the server's public key.
        shuffler: the shuffler's; from the job, not from the server.
        prg: where its randomness comes from.

    Guarantee: against a server that does not work with the shuffler, ``plan.event()``; against
    both together each report is locally ε0-private.
    Cost: 2 messages; 85 bytes per report.
    """

    def __init__(self, plan: ShuffledPlan, *, server: bytes, shuffler: bytes, prg: Prg) -> None:
        self._plan, self._server, self._shuffler, self._prg = plan, server, shuffler, prg
        self._tags: list[bytes] = []

    def report(self, update: Bounded | None) -> bytes:
        """Write the reports about an update; None sends dummies.

        Raises:
            PartyError: asked a second time.
        """
        if self._tags:
            raise PartyError("server", "it asked a client to report a second time")
        if update is None:
            payloads = dummies(self._plan, self._prg)
        else:
            payloads = encode(self._plan, update, self._prg)
        self._tags = records(
            self._prg.bytes(TAG_BYTES * self._plan.reports), TAG_BYTES, sender="this client"
        )
        session = self._plan.session
        boxes = [
            seal_box(self._server, tag + payload, associated=session)
            for tag, payload in zip(self._tags, payloads, strict=True)
        ]
        return pack(BUNDLE, seal_box(self._shuffler, b"".join(boxes), associated=session))

    def confirm(self, message: bytes) -> bytes:
        """Check that the server received every report of this client.

        Raises:
            PartyError: some are missing; names the shuffler, which dropped them, or the server,
                which says so.
        """
        (body,) = unpack(message, RECEIPT, "b", sender="server")
        arrived = set(records(cast(bytes, body), TAG_BYTES, sender="server"))
        missing = sum(tag not in arrived for tag in self._tags)
        if missing:
            raise PartyError(_NAME, f"{missing} of {len(self._tags)} reports of a client are lost")
        return pack(CONFIRMED)

    def save(self) -> bytes:
        """Write the state for `load`."""
        return b"".join(self._tags)

    def load(self, saved: bytes) -> None:
        """Go on from what `save` wrote."""
        self._tags = records(saved, TAG_BYTES, sender="this client")


@final
class Shuffler:
    """Opens bundles, forgets who sent them, and lets the reports go in random order.

    Every session is shuffled once: the same reports among another crowd would show whose are whose.

    Guarantee: the order that comes out is uniform and independent of the one that came in. It
    cannot tell clients from inventions of the server: who may take part is for the carrier of the
    messages to authenticate.
    Cost: one message in and one out; 85 bytes per report.
    """

    def __init__(self, mine: KeyPair, *, minimum: int, reports: int, prg: Prg) -> None:
        self._mine, self._minimum, self._reports, self._prg = mine, minimum, reports, prg
        self._seen: set[bytes] = set()

    @property
    def public(self) -> bytes:
        """The key that clients seal to; they take it from their job."""
        return self._mine.public

    @property
    def seen(self) -> bytes:
        """The sessions that were shuffled, for `remember` in another process."""
        return b"".join(sorted(self._seen))

    def remember(self, seen: bytes) -> None:
        """Refuse the sessions that an earlier process shuffled."""
        self._seen |= set(records(seen, SESSION_BYTES, sender="this shuffler"))

    def shuffle(self, message: bytes) -> bytes:
        """Shuffle what the clients sent.

        Raises:
            VoidRound: fewer clients than planned; nothing is let go.
            PartyError: asked for a session a second time.
        """
        session, body = cast(list[bytes], unpack(message, BUNDLES, "bb", sender="server"))
        if session in self._seen:
            raise PartyError("server", "it asked the shuffler to shuffle a round again")
        self._seen.add(session)
        bundles = records(body, self._reports * BOX_BYTES + BOX_OVERHEAD, sender="server")
        if len(set(bundles)) < len(bundles):
            raise PartyError("server", "it gave the shuffler one bundle twice")
        opened = [inside for bundle in bundles if (inside := self._open(bundle, session))]
        if len(opened) < self._minimum:
            raise VoidRound(
                _NAME, f"{len(opened)} clients reported, at least {self._minimum} are shuffled"
            )
        boxes = records(b"".join(opened), BOX_BYTES, sender="a client")
        order = self._prg.permutation(len(boxes)).tolist()
        return pack(RELEASED, b"".join(boxes[at] for at in order))

    def _open(self, bundle: bytes, session: bytes) -> bytes | None:
        try:
            return open_box(self._mine, bundle, associated=session)
        except InputError:
            return None  # not sealed for this round: no client of it


@final
class ShuffledServer:
    """Collects bundles, passes them on, opens what comes back, and estimates the mean.

    Guarantee: a mean is given only if all reports that were handed over came back and no client
    misses one of its own.
    Cost: memory for the reports, not for the updates.
    """

    stages = ("report", "shuffle", "confirm")

    def __init__(self, plan: ShuffledPlan, mine: KeyPair) -> None:
        self._plan, self._mine = plan, mine
        self._stage = 0
        self._bundles: dict[int, bytes] = {}
        self._released = b""
        self._refused = 0
        self._mean: Floats | None = None

    @property
    def survivors(self) -> tuple[int, ...]:
        """The clients that reported."""
        return tuple(sorted(self._bundles))

    @property
    def refused_reports(self) -> int:
        """How many reports were outside the domain."""
        return self._refused

    def invite(self) -> dict[int, bytes]:
        """Write the first message to every client."""
        return dict.fromkeys(range(self._plan.clients), open_message(self._plan, self._mine.public))

    def accept(self, index: int, message: bytes) -> None:
        """Take an answer of this stage.

        Raises:
            PartyError: it is none; names the sender.
        """
        name = _NAME if index == SHUFFLER else f"client {index}"
        stage = self.stages[self._stage]
        if (index == SHUFFLER) != (stage == "shuffle"):
            raise DisagreementError(name, f"nothing is awaited from it in the stage {stage!r}")
        if stage == "report":
            (body,) = unpack(message, BUNDLE, "b", sender=name)
            size = self._plan.reports * BOX_BYTES + BOX_OVERHEAD
            if len(cast(bytes, body)) != size or index in self._bundles:
                raise FrameError(name, f"wanted one bundle of {size} bytes")
            self._bundles[index] = cast(bytes, body)
        elif stage == "shuffle":
            (body,) = unpack(message, RELEASED, "b", sender=name)
            self._released = cast(bytes, body)
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
            return {SHUFFLER: pack(BUNDLES, self._plan.session, bodies)}
        if stage == "shuffle":
            tags = self._read_released()
            return dict.fromkeys(self.survivors, pack(RECEIPT, b"".join(sorted(tags))))
        return {}

    def mean(self) -> Floats:
        """Return the estimated mean update.

        Raises:
            VoidRound: the round is not over.
        """
        if self._mean is None:
            raise VoidRound("server", "the shuffler has not answered")
        return self._mean

    def _read_released(self) -> list[bytes]:
        wanted = len(self._bundles) * self._plan.reports
        boxes = records(self._released, BOX_BYTES, sender=_NAME)
        if len(boxes) != wanted:
            raise VoidRound(_NAME, f"it was given {wanted} reports and returned {len(boxes)}")
        opened = []
        for box in boxes:
            try:
                opened.append(open_box(self._mine, box, associated=self._plan.session))
            except InputError as error:
                raise VoidRound(_NAME, "it returned a report that does not open") from error
        self._mean, self._refused = estimate(
            self._plan, [one[TAG_BYTES:] for one in opened], clients=len(self._bundles)
        )
        return [one[:TAG_BYTES] for one in opened]


def session_of(message: bytes) -> bytes:
    """Read which session a shuffler is asked to shuffle."""
    session, _ = unpack(message, BUNDLES, "bb", sender="server")
    return cast(bytes, session)


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
