"""What the published protocols send, from public sizes alone: a forecast before there is a key."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice

from tacit.crypto.cipher import BITS, Layout, opened_bytes, wire_bytes
from tacit.learners.cipher.exchange import CHUNK
from tacit.learners.cipher.regression import Regression
from tacit.learners.cipher.secureboost import Boosting
from tacit.learners.cipher.secureboost.task import most_splits, sums_layout
from tacit.party.cost import Message, Round


def declare_boosting(
    task: Boosting,
    rows: int,
    columns: Mapping[str, int],
    *,
    asked: int = 0,
    done: int = 0,
    bits: int = BITS,
) -> tuple[Round, ...]:
    """Say what SecureBoost sends; keys and sizes, which come before, are not counted.

    Args:
        task: agreed by all.
        rows: that are learned from.
        columns: of every owner.
        asked: rows that are answered for.
        done: steps that an earlier start has made.
        bits: of a Paillier key.
    """

    def to_all(size: int) -> Round:
        return tuple(one for owner in task.passive for one in _sent(task.active, owner, size))

    def from_all(size: Mapping[str, int], times: Mapping[str, int]) -> Round:
        return tuple(
            one
            for owner in task.passive
            for _ in range(times[owner])
            for one in _sent(owner, task.active, size[owner])
        )

    once = dict.fromkeys(task.passive, 1)
    gradients = to_all(wire_bytes(task.cipher, task.layout(rows), bits=bits))
    tree = [gradients]
    for level in range(task.max_depth):
        nodes = max(1, 2 ** (level - 1)) if level else 1
        sums = wire_bytes(task.cipher, sums_layout(task, rows, nodes * task.max_bins), bits=bits)
        tree += [
            to_all(8 * rows),
            from_all(dict.fromkeys(task.passive, sums), columns),
            to_all(16 * 2**level),
            from_all(dict.fromkeys(task.passive, -(-rows // 8)), once),
        ]
    tree.append(to_all(8 * rows))
    rounds = tuple(tree) * ((task.n_estimators - done) * task.width)
    if not asked:
        return rounds
    splits = {owner: most_splits(task, columns[owner]) for owner in task.passive}
    pairs = tuple(Message(task.active, owner, 16 * count) for owner, count in splits.items())
    sides = {owner: asked * -(-count // 8) for owner, count in splits.items()}
    return (*rounds, pairs, tuple(Message(one, task.active, size) for one, size in sides.items()))


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
        matched = Layout(rows=rows, bound=1, room=1 << 60, by_owner=True)
        size = wire_bytes(task.cipher, matched, bits=bits)
        rounds.append(tuple(m for one in sizes for m in _sent(task.coordinator, one, size)))
    for batch in islice(task.batches(rows), done, None):
        rounds += _step(task, len(batch), sizes, bits)
    if asked:
        rounds.append((Message(task.other, task.labelled, 8 * asked),))
    return tuple(rounds)


def _step(task: Regression, batch: int, sizes: Mapping[str, int], bits: int) -> Iterator[Round]:
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
        yield tuple(m for one, other in pairs for m in _sent(one, other, residual))
        yield tuple(m for one, other in pairs for m in _sent(one, other, released[one]))
        yield tuple(m for one, other in pairs for m in _sent(one, other, opened[other]))
        return
    residual = wire_bytes(task.cipher, replace(layout, by_owner=False), bits=bits)
    yield _sent(second, first, residual)
    yield _sent(first, second, residual)
    for one, size in sizes.items():
        yield _sent(one, task.coordinator, released[one])
        yield (Message(task.coordinator, one, 8 * size),)


def _sent(sender: str, receiver: str, size: int) -> Round:
    return tuple(Message(sender, receiver, min(CHUNK, size - at)) for at in range(0, size, CHUNK))
