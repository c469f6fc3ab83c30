"""Sums that clients can check: a random linear tag under a key that the server has not.

Client i appends ⟨r, x_i⟩ + F(i, nonce_i) to what it sends, twice, modulo 2^64; r and F come from
the session and a key that the clients share, nonce_i is drawn anew and goes along in the clear. The
tags are added up as the words are. Then everyone is shown the sum, its tags, and who is in it with
which nonce; it looks for its own, takes the F of all off, and compares with ⟨r, sum⟩. A sum of
another round, or of other clients, has not its nonce, whatever session the server chose.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol, cast, final

import numpy as np
import torch

from tacit.crypto import derive
from tacit.errors import FrameError, PartyError
from tacit.federated.config import RoundConfig
from tacit.federated.contract import (
    HELPER,
    Aggregate,
    ClientSide,
    Offer,
    RunOver,
    Seat,
    ServerSide,
    VoidRound,
    kind_of,
    pack,
    records,
    unpack,
)
from tacit.federated.provision import read_secret
from tacit.federated.secagg.messages import OPEN as MASKED_OPEN
from tacit.federated.secagg.messages import SERVER, read_open
from tacit.federated.secagg.plan import (
    TAG_BITS,
    SecAggPlan,
    Words,
    centred,
    from_digits,
    from_wire,
    to_digits,
    to_wire,
)
from tacit.federated.secagg.sides import (
    SAVED,
    Tag,
    plan_sum,
    read_survivors,
    session_of,
    write_survivors,
)
from tacit.federated.shuffled.roles import COMPLAINED, CONFIRMED
from tacit.result import Claim
from tacit.ring import Prg

CHECK, TAGGED = 104, 105
_KEY_BYTES, _NONCE_BYTES, _CHUNK = 16, 16, 1 << 15
_ROUND = 1 << TAG_BITS
CLAIM = Claim(
    subject="the sum of a round that a client is shown, against the server",
    guarantee="a wrong sum is found out with probability 1 - 2^-40",
    assumptions=(
        "malicious: the server may do anything, but no client works with it: the tags are "
        "under one key that all clients share",
        "clients follow the protocol, and one of those who stayed is still there to check",
        "about the sum of the clients in the list that is shown: who is left out, in which "
        "round the others sent theirs (a server can open two under one session), and what is "
        "made of the sum, the next model, is not checked",
        "AES-128 and HMAC-SHA256 hold",
    ),
)
"""What is promised about a sum that clients check."""


class SumServer(ServerSide, Protocol):
    """A server's side that ends with a sum of words."""

    plan: SecAggPlan

    def total(self) -> Words:
        """Return the sum of the words of those who stayed."""
        ...


class SumClient(Protocol):
    """Makes a client's side that adds words up, and has them tagged."""

    def __call__(
        self, config: RoundConfig, seat: Seat, prg: Prg, *, tag: Tag | None = None
    ) -> ClientSide:
        """Make it, or go on from what was saved."""
        ...


def tags_of(plan: SecAggPlan, words: Words, key: bytes) -> list[int]:
    """Compute ⟨r, words⟩ for every tag of a session.

    Words are taken as numbers around zero, whose sums do not wrap; those of weights as they are.

    Guarantee: two different vectors of words have the same tags with probability 2^-50 at most, to
    whoever has not the key, if AES-128 and HMAC-SHA256 hold.
    Cost: 0 rounds; one pass of AES-CTR over 8 bytes a number and tag.
    """
    end = plan.dimension + plan.weight_words
    mask = plan.dtype.type(2 ** (8 * plan.word_bytes) - 1)
    streams = [Prg(_derived(key, plan, b"vector %d" % tag, _KEY_BYTES)) for tag in range(plan.tags)]
    # A random linear hash modulo 2^64 (Carter and Wegman 1979). Numbers around zero differ by less
    # than 2^40, so by a multiple of at most 2^39: one tag then agrees with 2^-25, two with 2^-50.
    totals = [0] * plan.tags
    drawn = np.empty(min(_CHUNK, end), np.uint64)
    for start in range(0, end, _CHUNK):
        stop = min(start + _CHUNK, end)
        values = min(stop, plan.dimension)
        numbers = np.concatenate(
            [
                centred(plan, words[start:values]).view(np.uint64),
                (words[max(start, plan.dimension) : stop] & mask).astype(np.uint64),
            ]
        )
        vector = drawn[: numbers.size]
        for tag, stream in enumerate(streams):
            stream.fill(torch.from_numpy(vector.view(np.uint8)))
            totals[tag] += int(np.dot(vector, numbers))
    return [total % _ROUND for total in totals]


def write_tags(plan: SecAggPlan, words: Words, key: bytes, index: int, nonce: bytes) -> None:
    """Write the tags of a client's words behind them; a nonce is for one vector of words alone."""
    found = zip(tags_of(plan, words, key), _pads(plan, key, index, nonce), strict=True)
    at = plan.dimension + plan.weight_words
    digits = [to_digits(plan, (tag + pad) % _ROUND, plan.tag_words) for tag, pad in found]
    words[at:] = [digit for tag in digits for digit in tag]


def is_right(plan: SecAggPlan, total: Words, nonces: Mapping[int, bytes], key: bytes) -> bool:
    """Tell whether a sum is that of these clients, each with what it tagged under this nonce.

    Guarantee: a wrong one passes with probability 2^-50 at most, as `tags_of` says.
    Cost: that of `tags_of`.
    """
    wanted = tags_of(plan, total, key)
    for index, nonce in nonces.items():
        pads = _pads(plan, key, index, nonce)
        wanted = [one + pad for one, pad in zip(wanted, pads, strict=True)]
    at = plan.dimension + plan.weight_words
    parts = [total[at + place * plan.tag_words :][: plan.tag_words] for place in range(plan.tags)]
    said = [from_digits(plan, part) for part in parts]
    return all((one - two) % _ROUND == 0 for one, two in zip(said, wanted, strict=True))


@final
class VerifiedServerSide:
    """Shows the sum to those who are in it before it counts.

    Guarantee: that of the aggregator inside; towards clients that of `is_right`.
    Cost: 1 stage more; as many bytes to every client as the words of an update.
    """

    def __init__(self, inside: SumServer, config: RoundConfig) -> None:
        self._inside, self._config = inside, config
        self._nonces: dict[int, bytes] = {}
        self._confirmed: set[int] | None = None

    def invite(self) -> dict[int, bytes]:
        """Invite everyone to the round."""
        return self._inside.invite()

    def accept(self, index: int, message: bytes) -> None:
        """Take an answer.

        Raises:
            RunOver: a client says that the sum is wrong.
        """
        name = f"client {index}"
        if self._confirmed is None:
            if index != HELPER and kind_of(message, sender=name) == TAGGED:
                nonce, message = cast(list[bytes], unpack(message, TAGGED, "bb", sender=name))
                if len(nonce) != _NONCE_BYTES or index in self._nonces:
                    raise FrameError(name, f"wanted one nonce of {_NONCE_BYTES} bytes")
                self._inside.accept(index, message)
                self._nonces[index] = nonce
            else:
                self._inside.accept(index, message)
            return
        if kind_of(message, sender=name) == COMPLAINED:
            raise RunOver(SERVER, f"{name} says that the sum it was shown is wrong")
        unpack(message, CONFIRMED, "", sender=name)
        self._confirmed.add(index)

    def complain(self, index: int, error: PartyError) -> None:
        """Hear that a client refused to go on."""
        self._inside.complain(index, error)

    def close(self) -> dict[int, bytes]:
        """End a stage; after the last one everybody is shown the sum.

        Raises:
            VoidRound: nobody confirmed it.
        """
        if self._confirmed is not None:
            if not self._confirmed:
                raise VoidRound(SERVER, "no client confirmed the sum")
            return {}
        messages = self._inside.close()
        if messages:
            return messages
        self._confirmed = set()
        survivors = self._inside.aggregate().survivors
        if missing := [index for index in survivors if index not in self._nonces]:
            raise VoidRound(f"client {missing[0]}", "it has tagged nothing, and is in the sum")
        words = to_wire(self._inside.plan, self._inside.total())
        nonces = b"".join(self._nonces[index] for index in survivors)
        return dict.fromkeys(survivors, pack(CHECK, write_survivors(survivors), nonces, words))

    def aggregate(self) -> Aggregate:
        """Return the mean of those who stayed."""
        return self._inside.aggregate()


@final
class VerifiedClientSide:
    """Tags what it sends, and checks the sum that comes of it, once.

    Guarantee: a server that has not the clients' key and shows this client a wrong sum is found
    out, but for a chance of 2^-50; the answer to it says one bit.
    Cost: 1 message more, 29 bytes more in the one with the update; two times `tags_of`.
    """

    def __init__(self, side: SumClient, config: RoundConfig, seat: Seat, prg: Prg) -> None:
        self._key = derive(read_secret(seat.secret).shared, context=b"tacit verified sums")
        self._config, self._index, self._prg = config, seat.index, prg
        self._invitation, self._nonce = b"", b""
        if seat.saved is not None:
            self._invitation, state = seat.saved
            fields = cast(list[bytes], unpack(state, SAVED, "bb", sender="this client"))
            self._nonce, inside = fields
            seat = replace(seat, saved=(self._invitation, inside))
        self._inside = side(config, seat, prg, tag=self._tag)

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Do a step of the round, or check its sum."""
        if kind_of(message, sender=SERVER) != CHECK:
            before = self._nonce
            answer = self._inside.answer(message, offer)
            self._invitation = self._invitation or message
            return answer if self._nonce == before else pack(TAGGED, self._nonce, answer)
        mine, self._nonce = self._nonce, b""  # one check: each answer is a guess at the key
        if not mine:
            raise PartyError(SERVER, "it showed a sum to a client without an update, or again")
        body, said, words = unpack(message, CHECK, "bbv", sender=SERVER)
        survivors = read_survivors(cast(bytes, body), self._config, self._index)
        nonces = dict(
            zip(survivors, records(cast(bytes, said), _NONCE_BYTES, sender=SERVER), strict=False)
        )
        if len(nonces) != len(survivors) or nonces[self._index] != mine:
            # A sum that this update is not in: of another round, or replayed under this session.
            return pack(COMPLAINED)
        plan = self._plan(self._invitation)
        if len(cast(memoryview, words)) != plan.upload_bytes:
            raise FrameError(SERVER, f"wanted a sum of {plan.upload_bytes} bytes")
        total = from_wire(plan, cast(memoryview, words))
        return pack(CONFIRMED if is_right(plan, total, nonces, self._key) else COMPLAINED)

    def save(self) -> bytes:
        """Write the nonce, and the state of the aggregator inside."""
        inside = self._inside.save()
        return pack(SAVED, self._nonce, inside) if inside else b""

    def _tag(self, plan: SecAggPlan, words: Words) -> None:
        if self._nonce:
            raise PartyError(SERVER, "it asked for a second update in one round")
        self._nonce = self._prg.bytes(_NONCE_BYTES)
        write_tags(plan, words, self._key, self._index, self._nonce)

    def _plan(self, invitation: bytes) -> SecAggPlan:
        kind = kind_of(invitation, sender=SERVER)
        if kind == MASKED_OPEN:
            session = read_open(invitation)[0].session
        else:
            session = session_of(invitation, kind)
        return replace(plan_sum(self._config), session=session)


def _pads(plan: SecAggPlan, key: bytes, index: int, nonce: bytes) -> list[int]:
    data = _derived(key, plan, b"client %d " % index + nonce, 8 * plan.tags)
    return [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]


def _derived(key: bytes, plan: SecAggPlan, what: bytes, length: int) -> bytes:
    return derive(key, context=b"tacit tag " + plan.session + what, length=length)
