"""Encrypted aggregation: clients encrypt words, the server adds ciphertexts, clients decrypt.

With one key that all clients share (Phong et al., 2018) any of them can decrypt, so that one who
works with the server opens every update. With shares of a Paillier key (Truex et al., 2019) only a
threshold of them together can.
"""

import math
from dataclasses import replace
from typing import cast, final

from tacit.crypto.cipher import CipherLayout, Ciphertext, KeyShare, Numbers, SecretKey, combine
from tacit.crypto.cipher.bfv import MOST_TERMS as MOST_CLIENTS
from tacit.crypto.cipher.paillier import PaillierPublicKey
from tacit.crypto.cipher.threshold import read_part
from tacit.errors import ConfigError, DisagreementError, FrameError, InputError, PartyError
from tacit.federated.config import RoundConfig
from tacit.federated.contract import (
    Aggregate,
    Offer,
    Seat,
    VoidRound,
    kind_of,
    pack,
    unpack,
)
from tacit.federated.provision import (
    public_key_of,
    read_secret,
    secret_key_of,
    share_of_key,
)
from tacit.federated.secagg.messages import SERVER
from tacit.federated.secagg.plan import SecAggPlan, Words, centred, from_wire, mean_of, to_wire
from tacit.federated.secagg.sides import (
    HIDDEN,
    LAST,
    RANGE,
    SAVED,
    SUBJECT,
    TAILS,
    Tag,
    open_sum,
    plan_sum,
    read_sum,
    read_survivors,
    words_of,
    write_survivors,
)
from tacit.federated.spec import FederatedSpec
from tacit.result import Claim
from tacit.ring import Prg

OPEN, UPLOAD, DECRYPT, OPENED, PART = range(80, 85)
_BFV_ROOM = 1 << 39
_HEAD_BYTES = 9  # of a message with one field


def layout_of(config: RoundConfig, plan: SecAggPlan) -> CipherLayout:
    """Say how large the numbers of one client are, and those of the sum of all.

    Raises:
        ConfigError: the cipher has no room for so many clients.
    """
    grid = config.mechanism.grid
    noise = 0.0 if grid is None else TAILS[grid.noise] * math.sqrt(grid.sigma2)
    most = math.ceil(plan.bound * plan.scale + noise) + 1
    bound = max(most, 2**plan.digit_bits)
    clients = config.federated.clients
    room = bound * clients
    if config.federated.cipher == "bfv" and (room >= _BFV_ROOM or clients > MOST_CLIENTS):
        raise ConfigError(
            f"bfv has room for sums below 2^39 of at most {MOST_CLIENTS} clients, these may reach "
            f"2^{math.log2(room):.1f} of {clients}; take cipher = \"paillier\" or 'masked'"
        )
    return CipherLayout(
        rows=plan.length,
        bound=bound,
        room=room,
        form="sum",
        by_owner=config.federated.threshold is None,
    )


def upload_bytes(config: RoundConfig) -> int:
    """Return how many bytes a client sends for an update, before the sum is decrypted."""
    public = public_key_of(config.federated.cipher, config.public_key)
    return _HEAD_BYTES + public.wire_bytes(layout_of(config, plan_sum(config)))


def claims(spec: FederatedSpec) -> tuple[Claim, ...]:
    """Return what is promised about single updates."""
    fed = spec.federated
    if fed.threshold is None:
        who = (
            "semi-honest: every party follows the protocol, and no client works with the server: "
            "all clients share one key, so that one that does opens everybody's updates"
        )
    else:
        who = (
            "semi-honest: every party follows the protocol; the server may work with up to "
            f"{fed.threshold - 1} of the {fed.clients} clients, as {fed.threshold} decrypt "
            "together"
        )
    hard = (
        "ring-LWE is hard at 128 bits (BFV)"
        if fed.cipher == "bfv"
        else "deciding composite residues is hard at 3072 bits (Paillier)"
    )
    made = "whoever made the keys was not the server, and forgot them"
    assumptions = who, made, hard, LAST, RANGE
    return (Claim(subject=SUBJECT, guarantee=HIDDEN, assumptions=assumptions),)


@final
class EncryptedServerSide:
    """Adds ciphertexts, and asks those who stayed to decrypt the sum.

    Guarantee: the server sees ciphertexts under keys that it has not, and the sum. It must follow
    the protocol: one that asks for the decryption of a single ciphertext is not noticed.
    Cost: 2 stages, one more for every client that falls silent while it decrypts; memory for one
    ciphertext.
    """

    def __init__(self, config: RoundConfig) -> None:
        self.plan, self._federated = plan_sum(config), config.federated
        self._layout = layout_of(config, self.plan)
        self._public = public_key_of(config.federated.cipher, config.public_key)
        self._sum: Ciphertext | None = None
        self._survivors: list[int] = []
        self._asked: list[int] = []
        self._parts: dict[int, bytes] = {}
        self._total: Words | None = None

    def invite(self) -> dict[int, bytes]:
        """Invite everyone to the round."""
        message = open_sum(OPEN, self.plan, self._federated.identities)
        return dict.fromkeys(range(self._federated.clients), message)

    def accept(self, index: int, message: bytes) -> None:
        """Add a ciphertext, or take a decryption.

        Raises:
            PartyError: it is none of this round's; names the client.
        """
        name = f"client {index}"
        try:
            if self._asked:
                self._take_decryption(index, name, message)
            else:
                self._take_ciphertext(index, name, message)
        except InputError as error:
            raise PartyError(name, str(error)) from error

    def complain(self, index: int, error: PartyError) -> None:
        """Do without a client."""

    def close(self) -> dict[int, bytes]:
        """End a stage: ask for decryptions until there are enough.

        Raises:
            VoidRound: too few ciphertexts, or too few that decrypt.
        """
        if len(self._survivors) < self._federated.minimum or self._sum is None:
            came, wanted = len(self._survivors), self._federated.minimum
            raise VoidRound(SERVER, f"{came} updates arrived, the plan wants {wanted}")
        wanted = self._federated.threshold or 1
        if self._total is None and len(self._parts) >= wanted:
            self._total = self._combined(self._sum)
        if self._total is not None:
            return {}
        missing = wanted - len(self._parts)
        left = [index for index in sorted(self._survivors) if index not in self._asked][:missing]
        if len(left) < missing:
            raise VoidRound(
                SERVER,
                f"{len(self._parts)} clients decrypted the sum, the key wants {wanted} of those "
                "who stayed",
            )
        self._asked += left
        survivors = write_survivors(self.survivors)
        return dict.fromkeys(left, pack(DECRYPT, survivors, self._public.dump(self._sum)))

    def aggregate(self) -> Aggregate:
        """Return the mean of those who stayed."""
        most = self._federated.largest_weight
        return mean_of(self.plan, self.total(), self.survivors, largest_weight=most)

    @property
    def survivors(self) -> tuple[int, ...]:
        """Whose ciphertexts are in the sum."""
        return tuple(sorted(self._survivors))

    def total(self) -> Words:
        """Return the sum of the words of those who stayed."""
        if self._total is None:
            raise VoidRound(SERVER, "the sum has not been decrypted")
        return self._total

    def _take_ciphertext(self, index: int, name: str, message: bytes) -> None:
        if index in self._survivors or not 0 <= index < self._federated.clients:
            raise DisagreementError(name, "no update is awaited from it")
        (body,) = cast(list[bytes], unpack(message, UPLOAD, "b", sender=name))
        sealed = self._public.load(body, self._layout)
        self._sum = sealed if self._sum is None else self._public.add(self._sum, sealed)
        self._survivors.append(index)

    def _take_decryption(self, index: int, name: str, message: bytes) -> None:
        if index not in self._asked or self._sum is None or self._total is not None:
            raise DisagreementError(name, "no decryption is awaited from it")
        if self._federated.threshold is None:
            (body,) = cast(list[bytes], unpack(message, OPENED, "b", sender=name))
            if len(body) != self.plan.upload_bytes:
                raise FrameError(name, f"wanted a sum of {self.plan.upload_bytes} bytes")
            self._total = from_wire(self.plan, body)
            return
        point, part = unpack(message, PART, "ib", sender=name)
        read_part(cast(PaillierPublicKey, self._public), cast(bytes, part), self._sum)
        if cast(int, point) in self._parts or not 1 <= cast(int, point) <= self._federated.clients:
            raise PartyError(name, "its share of the key is another client's, or nobody's")
        self._parts[cast(int, point)] = cast(bytes, part)

    def _combined(self, sealed: Ciphertext) -> Words:
        try:
            numbers = combine(
                cast(PaillierPublicKey, self._public),
                sealed,
                self._parts,
                threshold=self._federated.threshold or 0,
                holders=self._federated.clients,
            )
        except InputError as error:
            raise VoidRound(SERVER, str(error)) from error
        return _to_words(self.plan, numbers)


@final
class EncryptedClientSide:
    """Encrypts its words once, and decrypts one sum once.

    Guarantee: what it sends is a ciphertext, and of the sum of a round it decrypts one. A server
    that does not follow the protocol gets the plaintext of whatever it shows for the sum.
    Cost: 8 bytes a number with bfv, 8.1 to 9 with paillier at 3072 bits; a client that decrypts
    receives the sum (16 bytes a number with bfv) and sends 4 to 5 bytes a number.
    """

    def __init__(
        self, config: RoundConfig, seat: Seat, prg: Prg, *, tag: Tag | None = None
    ) -> None:
        self._config, self._index, self._prg, self._tag = config, seat.index, prg, tag
        self._federated = config.federated
        self._secret = read_secret(seat.secret).cipher
        self._plan: SecAggPlan | None = None
        self._is_over = False
        if seat.saved is not None:
            self._plan = read_sum(seat.saved[0], OPEN, config)
            (is_over,) = unpack(seat.saved[1], SAVED, "i", sender="this client")
            self._is_over = bool(is_over)

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Encrypt, or decrypt the sum."""
        kind = kind_of(message, sender=SERVER)
        if kind == OPEN:
            return self._upload(message, offer)
        if kind != DECRYPT:
            raise PartyError(SERVER, f"it sent a message of kind {kind}, which no round has here")
        if self._plan is None:
            raise PartyError(SERVER, "it did not invite this client to the round")
        if self._is_over:
            raise PartyError(SERVER, "it asked for a second decryption in one round")
        self._is_over = True
        return self._decrypted(message, self._plan)

    def save(self) -> bytes:
        """Write how far the round is."""
        return b"" if self._plan is None else pack(SAVED, int(self._is_over))

    def _upload(self, message: bytes, offer: Offer) -> bytes:
        if self._plan is not None:
            raise PartyError(SERVER, "it invited this client a second time")
        config, plan = self._config, read_sum(message, OPEN, self._config)
        own = self._own() if self._federated.threshold is None else None
        if own is None:
            self._share()  # refused before the update is trained
        words = words_of(config, plan, offer(), self._prg)
        if self._tag is not None:
            self._tag(plan, words)
        self._plan = plan
        numbers, layout = centred(plan, words).reshape(-1, 1), layout_of(config, plan)
        public = public_key_of(config.federated.cipher, config.public_key)
        sealed = (own or public).encrypt(numbers, layout, self._prg.bytes)
        return pack(UPLOAD, public.dump(sealed))

    def _decrypted(self, message: bytes, plan: SecAggPlan) -> bytes:
        body, data = cast(list[bytes], unpack(message, DECRYPT, "bb", sender=SERVER))
        count = len(read_survivors(body, self._config, self._index))
        fresh, config = layout_of(self._config, plan), self._config
        layout = replace(fresh, bound=fresh.bound * count, terms=count, by_owner=False)
        try:
            sealed = public_key_of(config.federated.cipher, config.public_key).load(data, layout)
            if config.federated.threshold is None:
                words = _to_words(plan, self._own().decrypt(sealed))
                return pack(OPENED, to_wire(plan, words))
            share = self._share()
            return pack(PART, share.point, share.decrypt_part(sealed))
        except InputError as error:
            raise PartyError(SERVER, str(error)) from error

    def _own(self) -> SecretKey:
        return secret_key_of(self._federated.cipher, self._secret, self._config.public_key)

    def _share(self) -> KeyShare:
        config = self._config
        return share_of_key(
            self._secret, config.public_key, config.federated.threshold, config.federated.clients
        )


def _to_words(plan: SecAggPlan, numbers: Numbers) -> Words:
    """Write sums as words again: modulo the size of a word, as masked ones are."""
    found: Words = numbers.reshape(-1).astype(plan.dtype)
    return found
