"""Plain aggregation: the server sees every update. The baseline, and the trusted server's way."""

from typing import cast, final

import numpy as np

from tacit.errors import DisagreementError, FrameError, PartyError
from tacit.learn.federated.contract import Aggregate, Offer
from tacit.learn.federated.packing import VoidRound, pack, unpack
from tacit.learn.federated.terms import Terms, clip_l2, on_grid
from tacit.ring import Prg

OPEN, UPDATE = 48, 49
_SLACK = 1e-3  # of a norm, for single precision


@final
class PlainServer:
    """Adds the updates as they come; with central privacy, noise before anyone sees the mean.

    Guarantee: towards those who see the models, the promise's; towards the server itself none.
    Cost: 2 messages; 4 bytes per parameter and client; memory for one sum.
    """

    def __init__(self, terms: Terms, prg: Prg) -> None:
        self._terms, self._prg = terms, prg
        self._sum = np.zeros(terms.dimension)
        self._weight = 0
        self._survivors: list[int] = []

    def invite(self) -> dict[int, bytes]:
        """Ask everyone for an update."""
        return dict.fromkeys(range(self._terms.clients), pack(OPEN))

    def accept(self, index: int, message: bytes) -> None:
        """Add an update.

        Raises:
            PartyError: it is not finite, longer than the clip, or a second one.
        """
        name = f"client {index}"
        weight, body = unpack(message, UPDATE, "ib", sender=name)
        if index in self._survivors or not 0 <= index < self._terms.clients:
            raise DisagreementError(name, "no update is awaited from it")
        if len(cast(bytes, body)) != 4 * self._terms.dimension:
            raise FrameError(name, f"wanted {self._terms.dimension} numbers of 4 bytes")
        if not 1 <= cast(int, weight) <= self._terms.largest_weight:
            raise PartyError(name, f"its weight is not 1 to {self._terms.largest_weight}")
        values = np.frombuffer(cast(bytes, body), "<f4").astype(np.float64)
        self._check(name, values)
        self._sum += cast(int, weight) * values
        self._weight += cast(int, weight)
        self._survivors.append(index)

    def complain(self, index: int, error: PartyError) -> None:
        """Do without a client."""

    def close(self) -> dict[int, bytes]:
        """End the round."""
        if len(self._survivors) < self._terms.minimum:
            raise VoidRound(
                "server",
                f"{len(self._survivors)} updates arrived, the plan wants {self._terms.minimum}",
            )
        return {}

    def aggregate(self) -> Aggregate:
        """Return the mean, with noise where it was promised."""
        promise = self._terms.promise
        if promise.kind == "central" and promise.grid is not None:
            self._sum = on_grid(promise.grid, self._sum, self._prg)
        mean = self._sum / max(self._weight, 1)
        return Aggregate(mean, self._weight, tuple(sorted(self._survivors)))

    def _check(self, name: str, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise PartyError(name, "its update holds values that are no finite numbers")
        clip = self._terms.promise.clip
        if clip is not None and self._terms.promise.kind in ("none", "central"):
            norm = float(np.linalg.norm(values))
            if norm > clip * (1 + _SLACK):
                raise PartyError(
                    name, f"its update has the L2 norm {norm:.4g}, the clip is {clip:g}"
                )


@final
class PlainClient:
    """Sends its update, clipped, and with local privacy under noise.

    Guarantee: with local privacy the promise's, towards everyone; else none towards the server.
    Cost: 4 bytes per parameter.
    """

    def __init__(self, terms: Terms, index: int, prg: Prg) -> None:
        self._terms, self._index, self._prg = terms, index, prg

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Send the update."""
        unpack(message, OPEN, "", sender="server")
        promise, update = self._terms.promise, offer()
        values = clip_l2(update.values, promise.clip)
        if promise.kind in ("local", "local-adaptive") and promise.grid is not None:
            values = on_grid(promise.grid, values, self._prg)
        weight = min(update.weight, self._terms.largest_weight)
        return pack(UPDATE, weight, values.astype("<f4").tobytes())

    def save(self) -> bytes:
        """Write nothing: there is one step."""
        return b""
