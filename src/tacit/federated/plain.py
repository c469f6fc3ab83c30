"""Plain aggregation: the server sees every update. The baseline, and the trusted server's way."""

from typing import cast, final

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.dp import REPLACE_CLIENT, normal
from tacit.errors import DisagreementError, FrameError, PartyError
from tacit.federated.adaptive import Selection, upload_selected
from tacit.federated.config import RoundConfig, clip_l2, go_bare, made_finite, on_grid
from tacit.federated.contract import Aggregate, Floats, Offer, Seat, VoidRound, pack, unpack
from tacit.ring import Prg

OPEN, UPDATE, SELECTED = 48, 49, 50
_SLACK = 1e-3  # of a norm, for single precision


@final
class PlainServer:
    """Adds the updates as they come; with central privacy, noise before anyone sees the mean.

    Guarantee: towards those who see the models, the mechanism's; towards the server itself none.
    Cost: 2 messages; 4 bytes per parameter and client; memory for one sum.
    """

    def __init__(self, config: RoundConfig, prg: Prg) -> None:
        self._config, self._prg = config, prg
        self._federated = config.federated
        self._sum = np.zeros(config.dimension)
        self._weight = 0
        self._survivors: list[int] = []

    def invite(self) -> dict[int, bytes]:
        """Ask everyone for an update."""
        return dict.fromkeys(range(self._federated.clients), pack(OPEN))

    def accept(self, index: int, message: bytes) -> None:
        """Add an update.

        Raises:
            PartyError: it is not finite, longer than the clip, or a second one.
        """
        name = f"client {index}"
        if index in self._survivors or not 0 <= index < self._federated.clients:
            raise DisagreementError(name, "no update is awaited from it")
        weight, values = self._read(name, message)
        if not 1 <= weight <= self._federated.largest_weight:
            raise PartyError(name, f"its weight is not 1 to {self._federated.largest_weight}")
        self._check(name, values)
        self._sum += weight * values
        self._weight += weight
        self._survivors.append(index)

    def complain(self, index: int, error: PartyError) -> None:
        """Do without a client."""

    def close(self) -> dict[int, bytes]:
        """End the round."""
        if len(self._survivors) < self._federated.minimum:
            came, wanted = len(self._survivors), self._federated.minimum
            raise VoidRound("server", f"{came} updates arrived, the plan wants {wanted}")
        return {}

    def aggregate(self) -> Aggregate:
        """Return the mean, with noise where it was promised."""
        mechanism = self._config.mechanism
        if mechanism.privacy.kind == "central" and mechanism.grid is not None:
            self._sum = on_grid(mechanism.grid, self._sum, self._prg)
        mean = self._sum / max(self._weight, 1)
        if mechanism.downlink_sigma > 0:
            mean = mean + mechanism.downlink_sigma * normal(self._prg, mean.size).numpy()
        return Aggregate(mean, self._weight, tuple(sorted(self._survivors)))

    def _read(self, name: str, message: bytes) -> tuple[int, NDArray[np.float64]]:
        """Read an update, whole or of chosen entries alone, as the mechanism has it."""
        size, selection = self._config.dimension, self._config.mechanism.selection
        if selection is None:
            weight, body = unpack(message, UPDATE, "ib", sender=name)
            if len(cast(bytes, body)) != 4 * size:
                raise FrameError(name, f"wanted {size} numbers of 4 bytes")
            return cast(int, weight), np.frombuffer(cast(bytes, body), "<f4").astype(np.float64)
        weight, places, body = unpack(message, SELECTED, "ibb", sender=name)
        if len(cast(bytes, places)) % 4 or len(cast(bytes, places)) != len(cast(bytes, body)):
            raise FrameError(name, "wanted as many values as entries, of 4 bytes each")
        chosen = np.frombuffer(cast(bytes, places), "<u4").astype(np.int64)
        if len(chosen) > selection.answers or len(set(chosen.tolist())) < len(chosen):
            raise PartyError(name, f"wanted at most {selection.answers} different entries")
        if len(chosen) and chosen.max() >= size:
            raise PartyError(name, f"its entry {chosen.max()} is not one of {size}")
        values = np.zeros(size)
        values[chosen] = np.frombuffer(cast(bytes, body), "<f4")
        return cast(int, weight), values

    def _check(self, name: str, values: np.ndarray) -> None:
        if not np.isfinite(values).all():
            raise PartyError(name, "its update holds values that are no finite numbers")
        clip = self._config.mechanism.clip
        if clip is not None and self._config.mechanism.privacy.kind in (
            "none",
            "central",
            "record",
        ):
            norm = float(np.linalg.norm(values))
            if norm > clip * (1 + _SLACK):
                raise PartyError(
                    name, f"its update has the L2 norm {norm:.4g}, the clip is {clip:g}"
                )


@final
class PlainClient:
    """Sends its update, clipped, and with local privacy under noise.

    Guarantee: with local privacy the mechanism's, towards everyone; else none towards the server.
    Cost: 4 bytes per parameter.
    """

    def __init__(self, config: RoundConfig, seat: Seat, prg: Prg) -> None:
        self._config, self._prg = config, prg

    def answer(self, message: bytes, offer: Offer) -> bytes:
        """Send the update."""
        unpack(message, OPEN, "", sender="server")
        mechanism = self._config.mechanism
        update = made_finite(offer(), self._config)
        values = clip_l2(update.values, mechanism.clip)
        weight = min(update.weight, self._config.federated.largest_weight)
        if mechanism.selection is not None:
            return pack(SELECTED, weight, *_select(values, mechanism.selection, self._prg))
        if mechanism.privacy.kind in ("local", "local-adaptive") and mechanism.grid is not None:
            noisy = on_grid(mechanism.grid, values, self._prg)
            bare = go_bare(update, mechanism, self._prg)
            values = noisy if bare is None else np.where(bare, values, noisy)
        return pack(UPDATE, weight, values.astype("<f4").tobytes())

    def save(self) -> bytes:
        """Write nothing: there is one step."""
        return b""


def _select(values: Floats, selection: Selection, prg: Prg) -> tuple[bytes, bytes]:
    """Write which entries are sent, and their values under noise."""
    places, chosen, _ = upload_selected(
        torch.from_numpy(values), selection, relation=REPLACE_CLIENT, prg=prg
    )
    return places.numpy().astype("<u4").tobytes(), chosen.numpy().astype("<f4").tobytes()
