"""Keyed aggregation: a client sends its words under a pad, and hears nothing more of the round."""

from typing import cast, final

import numpy as np

from tacit.crypto import KeyPair, make_key_pair
from tacit.errors import DisagreementError, FrameError, PartyError
from tacit.federated.config import RoundConfig
from tacit.federated.contract import (
    Aggregate,
    Enter,
    Offer,
    Seat,
    VoidRound,
    pack,
    unpack,
)
from tacit.federated.keyed.authority import (
    AUTHORITY,
    KEY_BYTES,
    OPEN,
    RELEASED,
    SIGNATURE_BYTES,
    UPLOAD,
    Authority,
    Summand,
    pad_key,
    release_message,
    summand_text,
)
from tacit.federated.secagg.messages import SERVER
from tacit.federated.secagg.plan import Words, add_masks, from_wire, mean_of, to_wire
from tacit.federated.secagg.sides import (
    CHOSEN,
    HIDDEN,
    LAST,
    RANGE,
    RUNS,
    SAVED,
    SUBJECT,
    Tag,
    open_sum,
    plan_sum,
    read_sum,
    words_of,
)
from tacit.federated.spec import FederatedSpec
from tacit.result import Claim
from tacit.ring import Prg

_HEAD_BYTES = 5 + 4 * 4 + 2 * KEY_BYTES + SIGNATURE_BYTES


def upload_bytes(config: RoundConfig) -> int:
    """Return how many bytes a client sends in a round."""
    return _HEAD_BYTES + plan_sum(config).upload_bytes


def make_authority(config: RoundConfig, mine: KeyPair, enter: Enter) -> Authority:
    """Make an authority that holds to the config."""
    return Authority(
        mine,
        clients=config.federated.clients,
        minimum=config.federated.minimum,
        keys=config.federated.identities,
        enter=enter,
    )


def claims(spec: FederatedSpec) -> tuple[Claim, ...]:
    """Return what is promised about single updates."""
    fed = spec.federated
    is_chosen = fed.server == "malicious"
    whose = (
        f"the {len(fed.identities or ())} clients named" if is_chosen else "the clients of a round"
    )
    others = (
        f"at most {fed.colluding_share:.0%} of {whose} work with the server, and the authority "
        "does not"
    )
    if is_chosen:
        who = f"malicious: the server may do anything, the authority follows the protocol; {others}"
    else:
        who = f"semi-honest: every party follows the protocol; {others}"
    named = (
        "the job names the clients' keys, and they are theirs"
        if fed.identities is not None
        else "the server invents no clients: the job does not name their keys"
    )
    pinned = (
        "the authority's key is the one that the job pins"
        if fed.authority is not None
        else "the server passes the authority's key on as it is: the job does not pin it, and a "
        "server that puts in its own opens every update"
    )
    kept = (
        "the authority keeps what it has released: one that forgets it releases two sums of a round"
    )
    hard = "X25519, AES-128, HMAC-SHA256 and Ed25519 hold"
    chosen = [CHOSEN, RUNS] if is_chosen else []
    assumptions = who, pinned, named, kept, hard, LAST, *chosen, RANGE
    return (Claim(subject=SUBJECT, guarantee=HIDDEN, assumptions=assumptions),)


@final
class KeyedServerSide:
    """Adds words under pads, and has the authority take the pads off the sum.

    Guarantee: that of `Authority`; whoever falls silent is not in the sum.
    Cost: 2 stages; memory for one sum.
    """

    def __init__(self, config: RoundConfig) -> None:
        self.plan, self._federated = plan_sum(config), config.federated
        self._invitation = open_sum(OPEN, self.plan, config.federated.identities)
        self._summands: dict[int, Summand] = {}
        self._sum: Words = np.zeros(self.plan.length, self.plan.dtype)
        self._is_asked = self._is_over = False

    def invite(self) -> dict[int, bytes]:
        """Invite everyone to the round."""
        return dict.fromkeys(range(self._federated.clients), self._invitation)

    def accept(self, index: int, message: bytes) -> None:
        """Add words, or take the pads off their sum.

        Raises:
            PartyError: it is nothing of this round; names the sender.
        """
        if index == AUTHORITY:
            (body,) = unpack(message, RELEASED, "v", sender="authority")
            self._take_off(cast(memoryview, body))
            return
        name = f"client {index}"
        if self._is_asked or index in self._summands or not 0 <= index < self._federated.clients:
            raise DisagreementError(name, "no update is awaited from it")
        public, identity, signature, words = unpack(message, UPLOAD, "bbbv", sender=name)
        sizes = [len(cast(bytes, one)) for one in (public, identity, signature, words)]
        if sizes != [KEY_BYTES, KEY_BYTES, SIGNATURE_BYTES, self.plan.upload_bytes]:
            raise FrameError(name, f"wanted an update of {self.plan.upload_bytes} bytes and keys")
        self._summands[index] = Summand(
            index=index,
            public=cast(bytes, public),
            identity=cast(bytes, identity),
            signature=cast(bytes, signature),
        )
        self._sum += from_wire(self.plan, cast(memoryview, words))

    def complain(self, index: int, error: PartyError) -> None:
        """Void the round if the authority refused."""
        if index == AUTHORITY:
            raise VoidRound("authority", error.reason) from error

    def close(self) -> dict[int, bytes]:
        """End a stage.

        Raises:
            VoidRound: too few updates, or no answer of the authority.
        """
        if self._is_over:
            return {}
        if self._is_asked:
            raise VoidRound("authority", "it did not answer")
        if len(self._summands) < self._federated.minimum:
            came, wanted = len(self._summands), self._federated.minimum
            raise VoidRound(SERVER, f"{came} updates arrived, the plan wants {wanted}")
        self._is_asked = True
        summands = [self._summands[index] for index in self.survivors]
        return {AUTHORITY: release_message(self._invitation, summands)}

    def aggregate(self) -> Aggregate:
        """Return the mean of those who sent something."""
        most = self._federated.largest_weight
        return mean_of(self.plan, self.total(), self.survivors, largest_weight=most)

    @property
    def survivors(self) -> tuple[int, ...]:
        """Whose words are in the sum."""
        return tuple(sorted(self._summands))

    def total(self) -> Words:
        """Return the sum of the words of those who stayed."""
        if not self._is_over:
            raise VoidRound(SERVER, "the authority has not answered")
        return self._sum

    def _take_off(self, body: memoryview) -> None:
        if not self._is_asked or self._is_over:
            raise DisagreementError("authority", "nothing is awaited from it")
        if len(body) != self.plan.upload_bytes:
            raise VoidRound("authority", f"wanted pads of {self.plan.upload_bytes} bytes")
        self._sum -= from_wire(self.plan, body)
        self._is_over = True


@final
class KeyedClientSide:
    """Sends its words under a pad of a key that is made for this round and forgotten at once.

    Guarantee: to whoever does not work with the authority what it sends is uniform. No pad is used
    twice, whatever the server repeats and however often this client begins again: each has a key
    pair of its own.
    Cost: 1 message, 149 bytes more than the words.
    """

    def __init__(
        self, config: RoundConfig, seat: Seat, prg: Prg, *, tag: Tag | None = None
    ) -> None:
        self._config, self._seat, self._prg, self._tag = config, seat, prg, tag
        self._is_sent = seat.saved is not None

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Send the update."""
        plan = read_sum(message, OPEN, self._config)
        if self._is_sent:
            raise PartyError(SERVER, "it invited this client a second time")
        words = words_of(self._config, plan, offer(), self._prg)
        if self._tag is not None:
            self._tag(plan, words)
        once = make_key_pair()
        index, signing = self._seat.index, self._seat.signing
        key = pad_key(once, self._seat.helper, invitation=message, index=index)
        add_masks(words, plus=[key])
        self._is_sent = True
        identity, signature = bytes(KEY_BYTES), bytes(SIGNATURE_BYTES)
        if self._config.federated.identities is not None:
            identity = signing.public_key().public_bytes_raw()
            signature = signing.sign(summand_text(message, index, once.public))
        return pack(UPLOAD, once.public, identity, signature, to_wire(plan, words))

    def save(self) -> bytes:
        """Write that the update has been sent: there is nothing else to keep."""
        return pack(SAVED, 1) if self._is_sent else b""
