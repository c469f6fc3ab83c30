"""Regression over columns of two owners by a cipher, with a coordinator and without one.

With a coordinator as Hardy et al. (2017, "Private federated learning on vertically partitioned data
via entity resolution and additively homomorphic encryption"): the logistic loss is replaced by its
Taylor polynomial of second order around 0, log 2 − ½ y z + ⅛ z² for y = ±1: another loss, with
another minimum. Its gradient Xᵀ(¼ z − ½ y) is linear in what each owner has, so that a cipher that
adds is enough. With squared errors it is Xᵀ(z − y).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

import numpy as np
import torch

from tacit.crypto.cipher import (
    BITS,
    CipherLayout,
    Numbers,
    Scheme,
    make_key,
    opened_bytes,
    wire_bytes,
)
from tacit.errors import ConfigError, DataError, PartyError
from tacit.learners.cipher.exchange import (
    FOLLOWS,
    KEY,
    OUTPUTS,
    PART,
    Floats,
    StepStore,
    ask_opening,
    messages,
    recv_key,
    recv_sealed,
    send_key,
    send_sealed,
    serve_opening,
    shown,
    take_opening,
)
from tacit.party import Session, merge
from tacit.party.cost import CostedMessage, Round
from tacit.result import Claim, Leak
from tacit.ring import Prg

FEATURE_BITS, RESIDUAL_BITS, WEIGHT_BITS = 14, 16, 32
"""A product of the largest feature and residual has 38 bits: in the worst case a sum over 2^8 rows
fits the room of 46 bits that is there without a coordinator, over 2^22 the 60 with one."""
OWN_GRADIENT = "the gradient of its own weights at every step"
OWN_WEIGHTS = "its own weights after every step"
STEPS_OF = "gradient and weights of {} at every step"
SCORES_OF = "the part of {} in the score of every row"
LARGEST_FEATURE, LARGEST_RESIDUAL = 8.0, 32.0
"""Where features and residuals saturate; standardise columns first."""


@dataclass(frozen=True, kw_only=True)
class Regression:
    """What all parties agree on.

    Attributes:
        labelled: the owner of the labels.
        other: the owner of further columns of the same rows.
        coordinator: who has the key, decrypts gradients and knows which rows match; None for two
            keys and no third party.
        loss: ``taylor`` for two classes, ``squares`` for numbers.
        cipher: with a coordinator Paillier alone, which multiplies row by row.
        max_iter: passes over the rows.
        rate: of a step.
        penalty: times the weights, added to the gradient; the constant has none.
        batch: rows of a step; 0 takes all.
        seed: of the public coins that order rows.
    """

    labelled: str
    other: str
    coordinator: str | None = None
    loss: Literal["taylor", "squares"] = "taylor"
    cipher: Scheme = "bfv"
    max_iter: int = 30
    rate: float = 0.5
    penalty: float = 0.01
    batch: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        names = [one for one in (self.labelled, self.other, self.coordinator) if one is not None]
        if len(set(names)) < len(names):
            raise ConfigError(f"parties must be different, got {', '.join(names)}")
        if self.coordinator is not None and self.cipher != "paillier":
            raise ConfigError("with a coordinator the cipher must be paillier: bfv has no scale")
        if self.max_iter < 1 or self.batch < 0 or self.rate <= 0 or self.penalty < 0:
            raise ConfigError("wanted one iteration at least and no negative numbers")

    def batches(self, rows: int) -> Iterator[Numbers]:
        """Yield the rows of every step, the same for all parties."""
        size = min(self.batch or rows, rows)
        coins = Prg(self.seed.to_bytes(16, "big"))
        for turn in range(self.max_iter):
            order = np.arange(rows)
            if size < rows:
                order = np.argsort(coins.fork(f"pass {turn}").words(rows).numpy(), kind="stable")
            yield from (np.sort(order[at : at + size]) for at in range(0, rows, size))

    def residual(self, own: Floats, y: Floats | None) -> Floats:
        """Return an owner's part of the residual: that of z, and of the labels where it has any."""
        if self.loss == "squares":
            return own - (0.0 if y is None else y)
        return 0.25 * own - (0.0 if y is None else y - 0.5)

    def layout(self, rows: int) -> CipherLayout:
        """Return how residuals of a batch are encrypted."""
        room = 1 << (46 if self.coordinator is None else 60)
        bound = int(LARGEST_RESIDUAL * 2**RESIDUAL_BITS)
        return CipherLayout(rows=rows, bound=bound, room=room, by_owner=self.coordinator is None)


def regress(
    session: Session,
    task: Regression,
    x: Floats,
    y: Floats | None = None,
    *,
    kept: StepStore | None = None,
) -> Floats:
    """Learn without a third party: each owner gets the weights of its own columns.

    Each owner has a key of its own. It encrypts its part of the residuals; the other multiplies
    them with its columns, masks the result and has it decrypted.

    Args:
        session: my end of the job; the two owners call this.
        task: agreed by both, without a coordinator.
        x: my columns, brought to one scale; a constant is added to those of the labels' owner.
        y: 0 and 1, or numbers, of the owner of the labels.
        kept: where I keep my weights after every step, to go on from there.

    Returns:
        My weights, the constant last where there is one.

    Guarantee: semi-honest. Neither learns anything of the other's columns and of the labels but
        through the gradients of its own weights, one for every step, which the protocol shows it:
        no guarantee for what follows from those. From a batch with no more rows than I have columns
        all residuals, hence labels, would follow: refused.
    Cost: two ciphertexts of residuals, two results and two openings per step; 4 rounds.
    """
    if task.coordinator is not None or session.me not in (task.labelled, task.other):
        raise ConfigError("this is for two owners and no coordinator")
    x, y = _checked(session, task, x, y)
    peer = task.other if session.me == task.labelled else task.labelled
    _meet(session, task, peer, x)
    draw, key = Prg.from_os().bytes, make_key(task.cipher, Prg.from_os().bytes)
    send_key(session, peer, key.public)
    theirs = recv_key(session, peer, task.cipher)
    whole, (start, weights) = _whole(x), _taken_up(kept, x.shape[1])
    with session.progress.stage("descend") as advance:
        for step, rows in islice(enumerate(task.batches(len(x))), start, None):
            part = task.residual(x[rows] @ weights, None if y is None else y[rows])
            sealed = key.encrypt(_fixed(part), task.layout(len(rows)), draw)
            send_sealed(session, peer, "residual", key.public, sealed)
            asked = recv_sealed(session, peer, "residual", theirs, task.layout(len(rows)))
            result = theirs.weigh(_t(whole[rows]), asked)
            asking = ask_opening(session, peer, theirs, result, draw)
            serve_opening(session, peer, key, result.layout)
            found = take_opening(session, peer, theirs, asking)
            gradient = found[:, 0] / 2.0 ** (FEATURE_BITS + RESIDUAL_BITS)
            gradient = (gradient + x[rows].T @ part) / len(rows)
            lean = weights if y is None else np.append(weights[:-1], 0.0)  # not the constant
            weights = weights - task.rate * (gradient + task.penalty * lean)
            session.ledger.record(shown(session.me, OWN_GRADIENT, weights.size))
            if kept is not None:
                kept.save(step + 1, {"weights": weights})
            advance(step + 1)
    return weights


def regress_masked(
    session: Session,
    task: Regression,
    x: Floats,
    y: Floats | None = None,
    *,
    kept: StepStore | None = None,
) -> Floats:
    """Learn with a coordinator as Hardy et al. (2017): no owner knows which rows match.

    The coordinator has sent `[[m]]`, encrypted: 1 for a row that belongs together, 0 for one that
    was only put there. All residuals are multiplied by it. All three keep what they know in
    ``kept``, to go on from there with the same rows in the same order.

    Guarantee: semi-honest, and the coordinator works with neither owner. Owners learn their weights
        after every step and not which rows match. The coordinator decrypts every gradient, chooses
        all weights and knows which rows match: no guarantee against it beyond that it never sees a
        row; with no more matching rows than columns it could solve for residuals.
    Cost: three ciphertexts of a batch and two results per step; 5 rounds.
    """
    if task.coordinator is None or session.me not in (task.labelled, task.other):
        raise ConfigError("this is for the two owners of a job with a coordinator")
    x, y = _checked(session, task, x, y)
    peer = task.other if session.me == task.labelled else task.labelled
    _meet(session, task, peer, x)
    session.publish(PART, x.shape, to=(task.coordinator,))
    key, draw = recv_key(session, task.coordinator, task.cipher), Prg.from_os().bytes
    matched = CipherLayout(rows=len(x), bound=1, room=1 << 60, by_owner=True)
    mask = recv_sealed(session, task.coordinator, "matched", key, matched)
    whole, (start, weights) = _whole(x), _taken_up(kept, x.shape[1])
    for step, rows in islice(enumerate(task.batches(len(x))), start, None):
        part = _fixed(task.residual(x[rows] @ weights, None if y is None else y[rows]))
        chosen = key.take(mask, rows)
        mine = key.scale(chosen, part[:, 0])
        limit = replace(task.layout(len(rows)), by_owner=False)
        fresh = key.encrypt(np.zeros_like(part), replace(limit, bound=1), draw)
        mine = key.add(mine, fresh)  # or the peer could try which number the mask was raised to
        if session.me == task.other:
            send_sealed(session, peer, "half", key, mine)
            total = recv_sealed(session, peer, "residual", key, limit)
        else:
            total = key.add(recv_sealed(session, peer, "half", key, limit), mine)
            send_sealed(session, peer, "residual", key, total)
        found = key.release(key.weigh(_t(whole[rows]), total), draw)
        send_sealed(session, task.coordinator, "gradient", key, found)
        given = session.recv(task.coordinator, "weights", (len(weights),)).numpy()
        weights = given / 2.0**WEIGHT_BITS
        session.ledger.record(shown(session.me, OWN_WEIGHTS, weights.size))
        if kept is not None:
            kept.save(step + 1, {"weights": weights})
    return weights


def coordinate(
    session: Session, task: Regression, matched: Numbers, *, kept: StepStore | None = None
) -> None:
    """Do the coordinator's part: encrypt who matches, decrypt gradients, choose weights.

    Guarantee: see `regress_masked`. Cost: as there; all decryptions are made here.
    """
    if session.me != task.coordinator:
        raise ConfigError(f"{session.me!r} is not the coordinator")
    owners, shapes = (task.labelled, task.other), {}
    for owner in owners:
        shape = session.learn(owner, PART, to=(session.me,))
        if shape[0] != len(matched) or not 0 < shape[1] <= 1 << 16:
            raise PartyError(owner, f"has {shape[0]} rows, wanted {len(matched)}")
        shapes[owner] = shape[1]
    draw, key = Prg.from_os().bytes, make_key(task.cipher, Prg.from_os().bytes)
    layout = CipherLayout(rows=len(matched), bound=1, room=1 << 60, by_owner=True)
    sealed = key.encrypt(matched.reshape(-1, 1), layout, draw)
    for owner in owners:
        send_key(session, owner, key.public)
        send_sealed(session, owner, "matched", key.public, sealed)
    weights = {owner: np.zeros(shapes[owner]) for owner in owners}
    start = 0 if kept is None else kept.begin()
    if start and kept is not None:
        before = kept.load(start)
        weights = {owner: before[owner].astype(np.float64) for owner in owners}
    for step, rows in islice(enumerate(task.batches(len(matched))), start, None):
        count = max(1, int(matched[rows].sum()))
        for owner in owners:
            limit = replace(
                layout, rows=shapes[owner], bound=layout.room, form="released", by_owner=False
            )
            result = recv_sealed(session, owner, "gradient", key.public, limit)
            found = key.decrypt(result)[:, 0] / 2.0 ** (FEATURE_BITS + RESIDUAL_BITS) / count
            lean = weights[owner].copy()
            if owner == task.labelled:
                lean[-1] = 0.0  # the constant
            weights[owner] -= task.rate * (found + task.penalty * lean)
            given = np.rint(weights[owner] * 2.0**WEIGHT_BITS).astype(np.int64)
            session.send(owner, "weights", torch.from_numpy(given))
            session.ledger.record(shown(session.me, STEPS_OF.format(owner), 2 * len(lean)))
        if kept is not None:
            kept.save(step + 1, weights)


def partial_scores(session: Session, task: Regression, x: Floats, weights: Floats) -> Floats | None:
    """Show the owner of the labels z of every row; None for the other owner.

    Guarantee: the owner of the labels learns the other's part of z, row by row; it would follow
        from z in any case. Cost: 8 bytes for every row; one round.
    """
    if session.me == task.labelled:
        own = np.hstack([x, np.ones((len(x), 1))]) @ weights
        words = session.recv(task.other, "scores", (len(x),)).numpy()
        session.ledger.record(shown(session.me, SCORES_OF.format(task.other), len(x)))
        found: Floats = own + words / 2.0**WEIGHT_BITS
        return found
    words = np.rint(x @ weights * 2.0**WEIGHT_BITS).astype(np.int64)
    session.send(task.labelled, "scores", torch.from_numpy(words))
    return None


def leaks_of_regression(
    task: Regression, rows: int, columns: Mapping[str, int], *, asked: int = 0
) -> tuple[Leak, ...]:
    """List everything that the protocol shows; ``asked`` are rows that are answered for."""
    steps = task.max_iter * -(-rows // min(task.batch or rows, rows))
    sizes = {task.labelled: columns[task.labelled] + 1, task.other: columns[task.other]}
    owners, third = (task.labelled, task.other), task.coordinator
    own = OWN_GRADIENT if third is None else OWN_WEIGHTS
    found = [shown(one, own, steps * size) for one, size in sizes.items()]
    if third is not None:
        for one, size in sizes.items():
            found.append(shown(third, STEPS_OF.format(one), steps * 2 * size))
    if asked:
        found.append(shown(task.labelled, SCORES_OF.format(task.other), asked))
    told = PART.leaks_of_all(owners, owners if third is None else (*owners, third))
    told += KEY.leaks_of_all(owners if third is None else (third,), owners)
    if third is None:
        told += merge(OUTPUTS.leaks_of_all(owners, owners) * steps)
    return (*told, *found)


def claims_of_regression(
    labelled: str, other: str, coordinator: str | None, cipher: str
) -> tuple[Claim, ...]:
    """Return what a regression by a cipher promises, and what it does not."""
    if coordinator is None:
        return (
            Claim(
                subject=f"rows of {labelled} and {other}, towards each other",
                guarantee="hidden, but for what the gradients of one's own weights tell",
                assumptions=(
                    FOLLOWS,
                    f"the cipher {cipher} holds",
                    "what follows from a gradient over many rows is not bounded",
                ),
            ),
        )
    return (
        Claim(
            subject=f"rows, towards {coordinator}",
            guarantee="no guarantee",
            assumptions=("it decrypts every gradient, chooses all weights and knows who matches",),
        ),
        Claim(
            subject=f"rows of {labelled} and {other}, and which of them match, towards each other",
            guarantee="hidden, but for what one's own weights tell after every step",
            assumptions=(
                FOLLOWS,
                f"the cipher {cipher} holds; {coordinator} works with neither owner",
            ),
        ),
    )


def declare_regression(
    task: Regression,
    rows: int,
    columns: Mapping[str, int],
    *,
    asked: int = 0,
    done: int = 0,
    bits: int = BITS,
) -> tuple[Round, ...]:
    """Say what a regression sends, with a coordinator or without one; as `declare_boosting`."""
    sizes = {task.labelled: columns[task.labelled] + 1, task.other: columns[task.other]}
    rounds: list[Round] = []
    if task.coordinator is not None:
        matched = CipherLayout(rows=rows, bound=1, room=1 << 60, by_owner=True)
        size = wire_bytes(task.cipher, matched, bits=bits)
        rounds.append(tuple(m for one in sizes for m in messages(task.coordinator, one, size)))
    for batch in islice(task.batches(rows), done, None):
        rounds += _declare_step(task, len(batch), sizes, bits)
    if asked:
        rounds.append((CostedMessage(task.other, task.labelled, 8 * asked),))
    return tuple(rounds)


def _declare_step(
    task: Regression, batch: int, sizes: Mapping[str, int], bits: int
) -> Iterator[Round]:
    first, second = task.labelled, task.other
    layout = task.layout(batch)
    residual = wire_bytes(task.cipher, layout, bits=bits)
    results = {
        one: replace(layout, rows=size, bound=layout.room, form="released", by_owner=False)
        for one, size in sizes.items()
    }
    released = {one: wire_bytes(task.cipher, like, bits=bits) for one, like in results.items()}
    if task.coordinator is None:
        pairs = ((first, second), (second, first))
        opened = {one: opened_bytes(task.cipher, like, bits=bits) for one, like in results.items()}
        yield tuple(m for one, other in pairs for m in messages(one, other, residual))
        yield tuple(m for one, other in pairs for m in messages(one, other, released[one]))
        yield tuple(m for one, other in pairs for m in messages(one, other, opened[other]))
        return
    residual = wire_bytes(task.cipher, replace(layout, by_owner=False), bits=bits)
    yield messages(second, first, residual)
    yield messages(first, second, residual)
    for one, size in sizes.items():
        yield messages(one, task.coordinator, released[one])
        yield (CostedMessage(task.coordinator, one, 8 * size),)


def _taken_up(kept: StepStore | None, columns: int) -> tuple[int, Floats]:
    """Return the step to go on after, and my weights there: zeros at the start."""
    start = 0 if kept is None else kept.begin()
    if not start or kept is None:
        return start, np.zeros(columns)
    return start, kept.load(start)["weights"].astype(np.float64)


def _checked(
    session: Session, task: Regression, x: Floats, y: Floats | None
) -> tuple[Floats, Floats | None]:
    """Refuse what cannot be learned from, before anything is sent."""
    if x.ndim != 2 or len(x) < 2 or not x.shape[1] or not np.isfinite(x).all():
        raise DataError(f"wanted two rows or more of finite features, got shape {x.shape}")
    if np.abs(x).max() > LARGEST_FEATURE:
        raise DataError(
            f"a feature is larger than {LARGEST_FEATURE:g}; standardise columns, and cap what is "
            "left"
        )
    if (y is not None) != (session.me == task.labelled):
        raise DataError("the owner of the labels has them, and nobody else")
    size = min(task.batch or len(x), len(x))
    if task.coordinator is None and size <= x.shape[1] + 1:
        raise DataError(
            f"a batch of {size} rows and {x.shape[1]} columns: a gradient would give all residuals "
            "away; take more rows than columns"
        )
    if y is None:
        return x, None
    if y.shape != (len(x),) or not np.isfinite(y).all():
        raise DataError("wanted a finite label for every row")
    if task.loss == "taylor" and set(np.unique(y).tolist()) != {0.0, 1.0}:
        raise DataError("the Taylor loss is for two classes, 0 and 1, both of which must occur")
    if np.abs(y).max() > LARGEST_RESIDUAL / 4:
        raise DataError(f"a label is larger than {LARGEST_RESIDUAL / 4:g}; bring labels to scale")
    return np.hstack([x, np.ones((len(x), 1))]), y


def _meet(session: Session, task: Regression, peer: str, x: Floats) -> None:
    """Make sure that both have as many rows, and that neither sees too much in a gradient."""
    session.publish(PART, x.shape, to=(peer,))
    rows, columns = session.learn(peer, PART, to=(session.me,))
    if rows != len(x):
        raise PartyError(peer, f"has {rows} rows, wanted {len(x)}; match ids first")
    size = min(task.batch or rows, rows)
    if task.coordinator is None and size <= columns:
        raise PartyError(peer, f"has {columns} columns for {size} rows: it would see residuals")


def _fixed(part: Floats) -> Numbers:
    kept = np.clip(part, -LARGEST_RESIDUAL, LARGEST_RESIDUAL)
    return np.rint(kept * 2.0**RESIDUAL_BITS).astype(np.int64).reshape(-1, 1)


def _whole(x: Floats) -> Numbers:
    return np.rint(x * 2.0**FEATURE_BITS).astype(np.int64)


def _t(matrix: Numbers) -> Numbers:
    return np.ascontiguousarray(matrix.T)
