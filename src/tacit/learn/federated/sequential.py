"""Cyclic weight transfer: a model goes from client to client, each of which trains it further.

Between them it goes through the server, sealed with a key that all clients share; the last model is
opened to the server. This is how models were passed on before sums were hidden: no guarantee.
"""

import struct
from typing import cast, final

import numpy as np
from numpy.typing import NDArray

from tacit.crypto import derive, seal, unseal
from tacit.errors import DisagreementError, FrameError, InputError, PartyError
from tacit.learn.federated.config import RoundConfig, clip_l2
from tacit.learn.federated.contract import (
    Aggregate,
    Floats,
    Offer,
    Update,
    VoidRound,
    kind_of,
    pack,
    unpack,
)
from tacit.learn.federated.provision import read_secret
from tacit.learn.federated.sums import SAVED, SERVER
from tacit.ring import Prg

PASS, PASSED, REVEAL, REVEALED = range(96, 100)
_PLAN = struct.Struct("<IIQ")
_COUNT = struct.Struct("<I")
_SEALING_BYTES = 28
_SESSION_BYTES = 16


def upload_bytes(config: RoundConfig) -> int:
    """Return how many bytes a client sends to the next; one of them sends the model besides."""
    return 9 + _COUNT.size + 4 * config.dimension + _SEALING_BYTES


@final
class SequentialServerSide:
    """Passes a sealed model from client to client, and has the last one opened.

    Guarantee: no guarantee.
    Cost: as many stages as clients, and one more; 4 bytes per parameter and client each way.
    """

    def __init__(self, config: RoundConfig, prg: Prg) -> None:
        self._config, self._session = config, prg.bytes(_SESSION_BYTES)
        self._waiting = list(range(config.clients))
        self._survivors: list[int] = []
        self._sealed = b""
        self._revealing: list[int] | None = None
        self._asked = -1
        self._change: NDArray[np.float64] | None = None

    def invite(self) -> dict[int, bytes]:
        """Give the model to the first client."""
        return self._pass_on()

    def accept(self, index: int, message: bytes) -> None:
        """Take a sealed model, or the last one.

        Raises:
            PartyError: it is none; names the client.
        """
        name = f"client {index}"
        if index != self._asked:
            raise DisagreementError(name, "it is not this client's turn")
        kind = PASSED if self._revealing is None else REVEALED
        (body,) = cast(list[bytes], unpack(message, kind, "b", sender=name))
        size = 4 * self._config.dimension
        wanted = size + _COUNT.size + _SEALING_BYTES if self._revealing is None else size
        if len(body) != wanted:
            raise FrameError(name, f"wanted a model of {wanted} bytes, got {len(body)}")
        if self._revealing is None:
            self._sealed, self._asked = body, -1
            self._survivors.append(index)
            return
        change = np.frombuffer(body, "<f4").astype(np.float64)
        if not np.isfinite(change).all():
            raise PartyError(name, "its model holds values that are no finite numbers")
        self._change, self._asked = change, -1

    def complain(self, index: int, error: PartyError) -> None:
        """Go on with the next client."""

    def close(self) -> dict[int, bytes]:
        """Give the model to the next client, and the last one back to be opened.

        Raises:
            VoidRound: too few trained it, or none of them opened it.
        """
        if self._change is not None:
            return {}
        if self._waiting and self._revealing is None:
            return self._pass_on()
        if self._revealing is None:
            if len(self._survivors) < self._config.minimum:
                raise VoidRound(
                    SERVER,
                    f"{len(self._survivors)} clients trained the model, the plan wants "
                    f"{self._config.minimum}",
                )
            self._revealing = list(self._survivors)
        if not self._revealing:
            raise VoidRound(SERVER, "none of the clients opened the model")
        self._asked = self._revealing.pop()
        return {self._asked: pack(REVEAL, self._session, self._sealed)}

    def aggregate(self) -> Aggregate:
        """Return what all clients changed, one after another."""
        if self._change is None:
            raise VoidRound(SERVER, "the model has not been opened")
        return Aggregate(self._change, len(self._survivors), tuple(self._survivors))

    def _pass_on(self) -> dict[int, bytes]:
        self._asked = self._waiting.pop(0)
        facts = _facts(self._config)
        return {self._asked: pack(PASS, self._session, facts, self._sealed)}


@final
class SequentialClientSide:
    """Trains the model that comes, and seals it for the next client.

    Guarantee: no guarantee: every client sees what those before it made of the model, and of two
    that meet before and after another the change of that one is plain.
    Cost: 4 bytes per parameter and 32 each way.
    """

    def __init__(
        self,
        config: RoundConfig,
        *,
        secret: bytes,
        saved: tuple[bytes, bytes] | None = None,
    ) -> None:
        self._config, self._secret = config, secret
        self._session = b""
        self._is_over = False
        if saved is not None:
            session, is_over = unpack(saved[1], SAVED, "bi", sender="this client")
            self._session, self._is_over = cast(bytes, session), bool(is_over)

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Train, or open the model that is the last."""
        kind = kind_of(message, sender=SERVER)
        if kind == REVEAL:
            return self._reveal(message)
        if self._session:
            raise PartyError(SERVER, "it gave this client the model a second time")
        before, count = self._read(message)
        update: Update = offer(before)
        change = before + clip_l2(update.values, self._config.mechanism.clip)
        if not np.isfinite(change).all():
            raise InputError("this client's training has diverged: its update is not finite")
        self._session = self._session_of(message)
        body = _COUNT.pack(count + 1) + change.astype("<f4").tobytes()
        return pack(PASSED, seal(self._key(), body, associated=self._session))

    def start(self, message: bytes) -> Floats:
        """Return how far the model has come from that of the round."""
        return self._read(message)[0]

    def save(self) -> bytes:
        """Write which round this is."""
        return pack(SAVED, self._session, int(self._is_over)) if self._session else b""

    def _reveal(self, message: bytes) -> bytes:
        session, sealed = cast(list[bytes], unpack(message, REVEAL, "bb", sender=SERVER))
        if not self._session or session != self._session or self._is_over:
            raise PartyError(SERVER, "it asked this client to open a model of another round")
        change, count = self._unsealed(session, sealed)
        if count < self._config.minimum:
            raise PartyError(
                SERVER, f"{count} clients trained this model, the config wants more to open it"
            )
        self._is_over = True
        return pack(REVEALED, change.astype("<f4").tobytes())

    def _read(self, message: bytes) -> tuple[Floats, int]:
        session, facts, sealed = cast(list[bytes], unpack(message, PASS, "bbb", sender=SERVER))
        if facts != _facts(self._config) or len(session) != _SESSION_BYTES:
            raise DisagreementError(
                SERVER,
                "its plan of the round is not the one that follows from this client's config",
            )
        if not sealed:
            return np.zeros(self._config.dimension, np.float32), 0
        return self._unsealed(session, sealed)

    def _unsealed(self, session: bytes, sealed: bytes) -> tuple[Floats, int]:
        try:
            body = unseal(self._key(), sealed, associated=session)
        except InputError as error:
            raise PartyError(SERVER, f"it passed on no model of this round: {error}") from error
        if len(body) != _COUNT.size + 4 * self._config.dimension:
            raise FrameError(SERVER, "it passed on a model of another size")
        return np.frombuffer(body, "<f4", offset=_COUNT.size).copy(), _COUNT.unpack_from(body)[0]

    def _session_of(self, message: bytes) -> bytes:
        return cast(bytes, unpack(message, PASS, "bbb", sender=SERVER)[0])

    def _key(self) -> bytes:
        return derive(read_secret(self._secret).shared, context=b"tacit sequential")


def _facts(config: RoundConfig) -> bytes:
    return _PLAN.pack(config.clients, config.minimum, config.dimension)
