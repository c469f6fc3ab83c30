"""What a pass costs, before it is run: messages, bytes and seconds; and what it shows to whom."""

import sys
from collections import Counter
from dataclasses import dataclass
from math import prod

from tacit.errors import ConfigError, FrameError
from tacit.llm.claims import rows_to_steal
from tacit.llm.model.architecture import Architecture
from tacit.llm.parties import Seats
from tacit.llm.permuted.attention import Incremental
from tacit.llm.permuted.batch import FORMS, Batch, Form
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.messages import COMMAND_BYTES, Item, sum_bytes
from tacit.llm.permuted.program import (
    exchanges,
    first_items,
    last_items,
    list_end,
    list_layer,
    parts,
)
from tacit.llm.permuted.weights import matrices
from tacit.party import LARGEST_MESSAGE_BYTES
from tacit.result import Leak

_TABLE_BYTES = 4
_WORD_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Network:
    """The link between owner and user, as far as the choice of a form depends on it."""

    rtt_ms: float = 0.2
    mbit_per_s: float = 10_000.0

    def __post_init__(self) -> None:
        if not (self.rtt_ms >= 0 and self.mbit_per_s > 0):
            raise ConfigError(
                f"a network has rtt_ms ≥ 0 and mbit_per_s > 0, got {self.rtt_ms} and "
                f"{self.mbit_per_s}"
            )


@dataclass(frozen=True, kw_only=True)
class PassCost:
    """Online traffic of one pass; ``chain`` counts the messages that wait for each other.

    The command that starts the pass is included, with the token it carries; the table that names
    the token goes beside the chain.
    """

    to_user_messages: int
    to_owner_messages: int
    to_user_bytes: int
    to_owner_bytes: int
    chain: int

    @property
    def messages(self) -> int:
        """Return all messages."""
        return self.to_user_messages + self.to_owner_messages

    @property
    def payload_bytes(self) -> int:
        """Return all bytes."""
        return self.to_user_bytes + self.to_owner_bytes

    def seconds(self, network: Network, *, compute_s: float = 0.0) -> float:
        """Return the time that the chain of messages and all bytes take."""
        bytes_s = self.payload_bytes * 8 / (network.mbit_per_s * 1e6)
        return self.chain * network.rtt_ms / 2000 + bytes_s + compute_s


def layer_messages(plan: Blueprint, form: Form | None) -> int:
    """Return the online messages of one layer."""
    return 2 * len(exchanges(plan, 0)) + (2 if form == "resent" else 6)


def pass_cost(plan: Blueprint, batch: Batch, run: int = 0, *, named: bool = True) -> PassCost:
    """Return the online cost of one run of a batch.

    Args:
        plan: the steps.
        batch: the batch.
        run: which of its runs.
        named: whether a token that was chosen before is named while this runs.
    """
    rows = batch.rows if batch.is_prompt else 1
    scored = batch.scored if batch.is_prompt else 1
    vocab = plan.architecture.vocab
    tally = plan.tally_bytes if batch.is_prompt else 0
    to_user, to_owner = [], [COMMAND_BYTES + rows * vocab * plan.wide_bytes + tally]
    if named and not batch.is_prompt:
        to_user.append(_TABLE_BYTES * vocab)
    for layer in range(plan.architecture.layers):
        for exchange in exchanges(plan, layer):
            to_user.append(rows * exchange.shown_bytes)
            to_owner.append(rows * exchange.answer_bytes)
        sizes = [sum_bytes(items) for items in plan.attention(layer, batch, run).messages]
        to_user += sizes[::2]
        to_owner += sizes[1::2]
    if (last := plan.last_norm()) is not None:
        to_user.append(scored * last.shown_bytes)
        to_owner.append(scored * last.answer_bytes)
    to_user.append(scored * plan.score().shown_bytes)
    beside = int(named and not batch.is_prompt)
    return PassCost(
        to_user_messages=len(to_user),
        to_owner_messages=len(to_owner),
        to_user_bytes=sum(to_user),
        to_owner_bytes=sum(to_owner),
        chain=len(to_user) + len(to_owner) - beside,
    )


@dataclass(frozen=True, kw_only=True)
class OfflineCost:
    """What a batch's material takes, in bytes, and how many messages carry it."""

    dealer_to_owner_bytes: int
    user_to_owner_bytes: int
    dealer_to_user_bytes: int
    messages: int


def offline_cost(plan: Blueprint, batch: Batch) -> OfflineCost:
    """Return the offline traffic of a batch, without the notes that order it."""
    items = [one for _, one in parts(plan, batch)]
    dealt, fixed = [one.dealt for one in items], [one.corrected for one in items]
    return OfflineCost(
        dealer_to_owner_bytes=sum(sum_bytes(items) for items in dealt),
        user_to_owner_bytes=sum(sum_bytes(items) for items in fixed),
        dealer_to_user_bytes=_TABLE_BYTES * batch.runs,
        messages=sum(bool(items) for items in (*dealt, *fixed)) + 1,
    )


def choose_form(plan: Blueprint, network: Network, *, past: int, rows: int, masked_kv: int) -> Form:
    """Return the form of attention that makes a block of steps fastest on a network."""

    def seconds(form: Form) -> float:
        batch = Batch(number=0, past=past, rows=rows, prompt=0, masked_kv=masked_kv, form=form)
        first, last = (pass_cost(plan, batch, run).seconds(network) for run in (0, rows - 1))
        return first + (rows - 1) * last

    return min(FORMS, key=seconds)


def leaks(plan: Blueprint, batch: Batch, run: int, seats: Seats) -> tuple[Leak, ...]:
    """List what one run shows to whom."""
    a = plan.architecture
    rows = batch.rows if batch.is_prompt else 1
    scored = batch.scored if batch.is_prompt else 1
    windows = Counter(a.window_of(layer) for layer in range(a.layers))
    scores = sum(count * _scores(plan, window, batch, run) for window, count in windows.items())

    def seen(what: str, why: str, elements: int) -> Leak:
        return Leak(to=seats.user, what=what, why=why, kind="protocol", elements=elements)

    shown = Counter[str]()
    for layer in range(a.layers):
        for exchange in exchanges(plan, layer):
            shown.update({one.name: rows * one.width for one in exchange.reveals})
    for exchange in list_end(plan, batch).exchanges:
        shown.update({one.name: scored * one.width for one in exchange.reveals})
    which = "all" if a.has_post_norm else "both"
    heads = ", heads together, with and without the weights of their norms" * a.has_qk_norm
    projected = seen(
        f"queries, keys and values of each layer before rotation and bias, in fresh orders{heads}",
        "the user gives them back with fewer bits",
        sum(shown[name] for name in ("q", "k", "v", "q norm", "k norm")),
    )
    return (
        seen(
            f"inputs of {which} norms, and so their norms, each in a fresh order",
            "the user normalises in the clear",
            shown["x"],
        ),
        *((projected,) if projected.elements else ()),
        seen(
            "attention scores of each layer, heads and keys in fresh orders",
            "the user computes softmax in the clear",
            scores,
        ),
        seen(
            "inputs of the activation of each layer, in a fresh order",
            "the user computes it in the clear",
            shown["gate"] + shown["up"],
        ),
        seen(
            "scores of every token, in a fresh order",
            "the user chooses the next token",
            shown["scores"],
        ),
        *(_counted(seats, scored * a.vocab) if plan.counts else ()),
        Leak(
            to=seats.owner,
            what="how many tokens are read and written, and when",
            why="sizes are not hidden",
            kind="size",
            elements=rows,
        ),
        Leak(
            to=seats.dealer,
            what="how many tokens are ordered",
            why="sizes are not hidden",
            kind="size",
            elements=rows,
        ),
    )


def _scores(plan: Blueprint, window: int, batch: Batch, run: int) -> int:
    """Count the attention scores of a layer with a window in one run."""
    a = plan.architecture
    layer = next(i for i in range(a.layers) if a.window_of(i) == window)
    kernel = plan.attention(layer, batch, run)
    if isinstance(kernel, Incremental):
        return kernel.layout.count
    return a.heads * kernel.n


def _counted(seats: Seats, elements: int) -> tuple[Leak, ...]:
    leak = Leak(
        to=seats.user,
        what="which scores belong to tokens that came before, and how often each was chosen; by "
        "made-up counts a cheating user learns all scores with their tokens",
        why="the user applies a repetition penalty",
        kind="protocol",
        elements=elements,
    )
    return (leak,)


def stolen_leak(a: Architecture, seats: Seats) -> Leak:
    """Return what a user has from the first text on."""
    return Leak(
        to=seats.user,
        what="no guarantee for the weights: a user who cheats can compute all of them from about "
        f"{rows_to_steal(a):,} tokens",
        why="it can add to what the owner computes, and sees what comes of it",
        kind="protocol",
        elements=sum(one.shape[0] * one.shape[1] for one in matrices(a)),
    )


def material_bytes(
    plan: Blueprint, batch: Batch, *, sender: str, most: int = sys.maxsize
) -> tuple[int, int]:
    """Return about what a batch takes in memory at its owner, and the largest part of it.

    Words are unpacked to 8 bytes when they come, and what is dealt has an order of the same size.

    Raises:
        FrameError: a part of it would not fit into a message, or the whole surely not into ``most``
            bytes.
    """
    a, room = plan.architecture, min(most // plan.architecture.layers, LARGEST_MESSAGE_BYTES)
    # From the sizes alone: what says where every weight lies may be too large itself.
    if a.heads * batch.rows * (batch.past + batch.rows) // 2 > room:
        raise FrameError(sender, f"ordered {batch.rows} rows at once, which is too much here")
    widest = next((i for i in range(a.layers) if not a.window_of(i)), 0)
    layer_items = list_layer(plan, batch, widest).items
    some_parts = [first_items(plan, batch), layer_items, last_items(plan, batch)]
    largest = max(sum_bytes(some) for one in some_parts for some in (one.dealt, one.corrected))
    rows = batch.rows if batch.is_prompt else 1
    largest = max(largest, rows * a.vocab * plan.wide_bytes)
    if largest > LARGEST_MESSAGE_BYTES:
        raise FrameError(
            sender,
            f"ordered {batch.rows} rows at once; a message of that would have {largest} bytes, "
            f"and {LARGEST_MESSAGE_BYTES} is the most",
        )
    head, layer, tail = (2 * _words(one.dealt) + _words(one.corrected) for one in some_parts)
    total = _WORD_BYTES * (head + a.layers * layer + tail + batch.runs * a.vocab)
    return total, _WORD_BYTES * max(head, layer, tail)


def _words(items: list[Item]) -> int:
    return sum(prod(item.shape) for item in items)
