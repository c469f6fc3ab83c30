"""Federated transfer learning (Liu et al., 2018) by a cipher, with linear representations.

The owner of the labels (source) has rows of its own and some that the other owner (target) has as
well, in other columns. Both learn linear maps into one space: U = X W. Labels are carried over by
Φ = Σ yᵢ uᵢ / n, and the target's score is U Φ. The loss of the common rows is the logistic one's
Taylor polynomial of second order, −½ y z + ⅛ z², plus γ |u_source − u_target|². All gradients are
linear in what the other owner has: a cipher that adds is enough. Each owner has a key of its own.
"""

from dataclasses import dataclass

import numpy as np

from tacit.crypto.cipher import CipherLayout, Numbers, Scheme, make_key
from tacit.errors import ConfigError, DataError, PartyError
from tacit.learners.cipher.exchange import (
    Floats,
    ask_opening,
    recv_key,
    recv_sealed,
    send_key,
    send_sealed,
    serve_opening,
    shown,
    take_opening,
)
from tacit.learners.cipher.regression import LARGEST_FEATURE, OWN_GRADIENT
from tacit.party import Fact, Session
from tacit.result import Leak
from tacit.ring import Prg

VALUE_BITS, WEIGHT_BITS = 16, 16
COMMON = Fact(
    tag="common",
    count=1,
    what="how many common rows {owner} counts",
    why="what is sent is sized by it",
)
SCORES = "the scores of its own rows"
_CAP = 16.0
"""Where what is exchanged saturates."""
_ROOM = 1 << 46
"""What a sum of products may reach: below the least room of a cipher that weighs."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What both owners agree on.

    Attributes:
        source: who has the labels.
        target: who has other columns of the common rows.
        width: of the common space.
        steps: of gradient descent.
        rate: of a step.
        alignment: γ, how much common rows are drawn together.
        penalty: times the maps, added to their gradients.
        cipher: how what is exchanged is encrypted.
        seed: of the maps at the start.
    """

    source: str
    target: str
    width: int = 8
    steps: int = 30
    rate: float = 0.5
    alignment: float = 0.1
    penalty: float = 0.01
    cipher: Scheme = "bfv"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.source == self.target:
            raise ConfigError("source and target must be different parties")
        if not (1 <= self.width <= 32 and self.steps >= 1 and self.rate > 0):
            raise ConfigError("wanted a width of 1 to 32, a step at least and a positive rate")

    def start(self, columns: int, who: str) -> Floats:
        """Return the map that an owner starts with."""
        drawn = Prg(self.seed.to_bytes(16, "big")).fork(who).words((columns, self.width)).numpy()
        found: Floats = drawn / 2.0**63 / np.sqrt(columns)
        return found

    def layout(self, rows: int) -> CipherLayout:
        """Return how a matrix of so many rows is encrypted."""
        bound = int(_CAP * 2**VALUE_BITS)
        return CipherLayout(rows=rows, width=self.width, bound=bound, room=_ROOM, by_owner=True)


def carry_over(
    session: Session, task: Transfer, x: Floats, common: Numbers, y: Floats | None = None
) -> Floats:
    """Learn both maps; every owner gets its own.

    Args:
        session: my end of the job; source and target call this.
        task: agreed by both.
        x: my rows, columns brought to one scale.
        common: which of my rows both have, in the same order for both.
        y: 0 and 1 for every row of the source.

    Returns:
        My map, (columns, width); the source appends Φ as a last row.

    Guarantee: semi-honest. An owner learns the gradient of its own map at every step, and sizes:
        the common rows, and the columns of the other, for which it decrypts under a mask. No
        guarantee for what follows from that. Labels stay at the source.
    Cost: four ciphertexts, two results and two openings per step; 4 rounds.
    """
    signs = _check(session, task, x, common, y)
    is_source = session.me == task.source
    peer = task.target if is_source else task.source
    rows, draw = len(common), Prg.from_os().bytes
    session.publish(COMMON, (rows,), to=(peer,))
    (found_rows,) = session.learn(peer, COMMON, to=(session.me,))
    if found_rows != rows:
        raise PartyError(peer, f"has {found_rows} common rows, wanted {rows}; match ids first")
    key = make_key(task.cipher, Prg.from_os().bytes)
    send_key(session, peer, key.public)
    theirs = recv_key(session, peer, task.cipher)
    weights = task.start(x.shape[1], session.me)
    with session.progress.stage("carry over", task.steps) as advance:
        for step in range(task.steps):
            parts = _parts(task, x @ weights, common, signs)
            for tag, matrix in parts.items():
                sealed = key.encrypt(_fixed(matrix), task.layout(len(matrix)), draw)
                send_sealed(session, peer, tag, key.public, sealed)
            asked = {
                tag: recv_sealed(session, peer, tag, theirs, task.layout(size))
                for tag, size in (("rows", rows), ("square", task.width))
            }
            left, known = _equations(task, x, weights, common, signs)
            first, second = (
                theirs.weigh(_whole(left[tag]), asked[tag]) for tag in ("rows", "square")
            )
            result = theirs.add(first, second)
            asking = ask_opening(session, peer, theirs, result, draw)
            serve_opening(session, peer, key, result.layout)
            found = take_opening(session, peer, theirs, asking)
            gradient = known + found / 2.0 ** (VALUE_BITS + WEIGHT_BITS)
            weights = weights - task.rate * (gradient + task.penalty * weights)
            session.ledger.record(shown(session.me, OWN_GRADIENT, weights.size))
            advance(step + 1)
    if signs is None:
        return weights
    return np.vstack([weights, _carrier(x @ weights, signs)])


def scores_of_target(session: Session, task: Transfer, x: Floats, learned: Floats) -> Floats | None:
    """Give the target a score for each of its rows; None at the source, whose rows do not matter.

    Guarantee: the source learns how many rows there are; the target learns its scores, and Φ as far
        as they tell it. Cost: a ciphertext, a result and an opening; 3 rounds.
    """
    draw = Prg.from_os().bytes
    layout = CipherLayout(
        rows=task.width, bound=int(_CAP * 2**VALUE_BITS), room=_ROOM, by_owner=True
    )
    if session.me == task.source:
        key = make_key(task.cipher, draw)
        send_key(session, task.target, key.public)
        sealed = key.encrypt(_fixed(learned[-1:].T), layout, draw)
        send_sealed(session, task.target, "carrier", key.public, sealed)
        serve_opening(session, task.target, key, layout)
        return None
    theirs = recv_key(session, task.source, task.cipher)
    carrier = recv_sealed(session, task.source, "carrier", theirs, layout)
    asked = ask_opening(
        session, task.source, theirs, theirs.weigh(_whole(x @ learned), carrier), draw
    )
    found = take_opening(session, task.source, theirs, asked)
    leak = Leak(to=session.me, what=SCORES, why="the result", kind="output", elements=len(found))
    session.ledger.record(leak)
    return found[:, 0] / 2.0 ** (VALUE_BITS + WEIGHT_BITS)


def _carrier(space: Floats, signs: Floats) -> Floats:
    """Return Φ, which carries labels over."""
    found: Floats = signs @ space / len(space)
    return found


def _parts(
    task: Transfer, space: Floats, common: Numbers, signs: Floats | None
) -> dict[str, Floats]:
    """Return what the other owner needs of me: of every common row, and one square.

    From the source, −½ y Φ − 2γ u and ¼ ΦᵀΦ; from the target u and its mean square.
    """
    here = space[common]
    if signs is None:
        return {"rows": here, "square": here.T @ here / len(here)}
    carrier = _carrier(space, signs)
    rows = -0.5 * signs[common][:, None] * carrier - 2 * task.alignment * here
    return {"rows": rows, "square": 0.25 * np.outer(carrier, carrier)}


def _equations(
    task: Transfer, x: Floats, weights: Floats, common: Numbers, signs: Floats | None
) -> tuple[dict[str, Floats], Floats]:
    """Return what multiplies the other's parts in my gradient, and what I know of it myself."""
    here, count = x[common], len(common)
    space = here @ weights
    known = 2 * task.alignment * here.T @ space / count
    if signs is None:
        return {"rows": here.T / count, "square": here.T @ space / count}, known
    sums = (x.T @ signs / len(x))[:, None]  # how Φ moves with my map
    carrier = _carrier(x @ weights, signs)
    rows = -0.5 * sums * signs[common][None, :] / count - 2 * task.alignment * here.T / count
    return {"rows": rows, "square": 0.25 * sums * carrier[None, :]}, known


def _fixed(matrix: Floats) -> Numbers:
    kept = np.clip(matrix, -_CAP, _CAP)
    return np.rint(kept * 2.0**VALUE_BITS).astype(np.int64)


def _whole(matrix: Floats) -> Numbers:
    return np.rint(matrix * 2.0**WEIGHT_BITS).astype(np.int64)


def _check(
    session: Session, task: Transfer, x: Floats, common: Numbers, y: Floats | None
) -> Floats | None:
    """Refuse what cannot be learned from, before anything is sent; return labels as ±1."""
    if session.me not in (task.source, task.target):
        raise ConfigError(f"{session.me!r} is neither source nor target")
    if x.ndim != 2 or not np.isfinite(x).all() or np.abs(x).max(initial=0) > LARGEST_FEATURE:
        raise DataError(
            f"wanted finite features within ±{LARGEST_FEATURE:g}; standardise columns first"
        )
    if len(common) <= x.shape[1] or len(set(common.tolist())) < len(common):
        raise DataError(
            f"wanted more common rows than my {x.shape[1]} columns, each once, got {len(common)}"
        )
    if common.min() < 0 or common.max() >= len(x):
        raise DataError("a common row is not among mine")
    if (y is not None) != (session.me == task.source):
        raise DataError("the source has the labels, and nobody else")
    if y is None:
        return None
    if y.shape != (len(x),) or set(np.unique(y).tolist()) != {0.0, 1.0}:
        raise DataError("wanted 0 or 1 for every row of the source, both of which must occur")
    signs: Floats = 2 * y - 1
    return signs
