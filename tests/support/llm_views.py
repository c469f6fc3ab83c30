"""What each party of a private chat receives, checked: shared by the transcripts and mutations.

A corrupt party knows every generator that it has a key of: without loss of generality they give
zeros. What is left is the randomness that it does not know.
"""

import importlib
import itertools
import re
from collections import defaultdict
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple
from unittest import mock

import torch

from support.crypto import complaints, related
from support.llm import BRIEF, answering, speak, tiny
from support.mpc import ZeroPrg
from tacit import ring
from tacit.llm.permuted import FORMS, Batch, fit_precision
from tacit.llm.permuted.attention import Incremental, Resent
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.permuted.exchange import Exchange
from tacit.llm.permuted.messages import pack, split, unpack
from tacit.llm.permuted.prf_stream import PrfStream
from tacit.llm.permuted.program import exchanges
from tacit.llm.permuted.serving import OwnerParty, Serving

KNOWN = b"k" * 16
PROMPT = [7] * 24
LIMIT = 34
FEWEST = 3000  # words that say something about uniformity


class Zeros(ZeroPrg):
    def below(self, bound, shape):
        return torch.zeros(shape, dtype=torch.int64)

    def bytes(self, count):
        return KNOWN[:count]


class Maker:
    """Stands for `Prg` in one module: known keys give zeros, and a corrupt party draws them."""

    def __init__(self, is_corrupt):
        self._is_corrupt = is_corrupt

    def __call__(self, key):
        return Zeros() if key == KNOWN else ring.Prg(key)

    def from_os(self):
        return Zeros() if self._is_corrupt else ring.Prg.from_os()


MAKERS = {"setup": "owner", "owner": "owner", "client": "user"}


def overheard(form, corrupt, *, family="llama", prompt=None, seed=0, limit=LIMIT, precision=None):
    """Run a chat with one corrupt party; return what everyone received and sent."""
    model = tiny(family, seed=seed)
    with ExitStack() as stack:
        for name in ("setup", "owner", "client", "weights", "dealer"):
            module = importlib.import_module(f"tacit.llm.permuted.{name}")
            maker = Maker(MAKERS.get(name) == corrupt)
            stack.enter_context(mock.patch.object(module, "Prg", maker))
        talk = answering(prompt or PROMPT, limit)
        return speak(model, talk, form=form, counts=True, precision=precision)


def kind_of(label):
    return re.sub(r"\d+", "#", label)


def without(kind, label):
    """Make one draw give what a missing mask would be: zeros, or the identity."""
    original = getattr(PrfStream, kind)

    def wrapped(self, name, *arguments):
        drawn = original(self, name, *arguments)
        if kind_of(name) != label:
            return drawn
        if kind == "words":
            return torch.zeros_like(drawn)
        return drawn.sort(-1).values

    return mock.patch.object(PrfStream, kind, wrapped)


def passes(notes, sender):
    """Split the online messages of a chat into passes; a command starts one at the owner."""
    out = []
    for tag, words in notes:
        if not tag.startswith("run0/") or not tag.endswith(sender):
            continue
        if tag.startswith("run0/next"):
            out.append([words[32:]])
        else:
            out[-1].append(words)
    return [one for one in out if len(one) > 1]


def held_by_owner(shares):
    """Note every share that the owner computes: they must be as uniform as what it receives."""

    def noting(original):
        def wrapped(*arguments, **named):
            out = original(*arguments, **named)
            name = original.__qualname__
            if name == "Exchange.take":  # words of an exchange have lengths of their own
                for one, part in zip(arguments[0].answers, out, strict=True):
                    shares[name].append(pack(part.reshape(-1), one.nbytes))
            elif name == "OwnerParty.linear":
                product = arguments[1]
                shares[kind_of(product.name)].append(pack(out.reshape(-1), product.nbytes))
            else:
                shares[name].append(out.reshape(-1))
            return out

        return wrapped

    stack = ExitStack()
    for thing, name in (
        (Exchange, "take"),
        (Incremental, "serve"),
        (Resent, "serve"),
        (Serving, "embed_prompt"),
        (Serving, "embed_choice"),
        (OwnerParty, "linear"),
    ):
        stack.enter_context(mock.patch.object(thing, name, noting(getattr(thing, name))))
    return stack


def check_owner(form, family="llama"):
    """All that the owner receives, sends or holds is uniform, alone and together."""
    shares = defaultdict(list)
    with held_by_owner(shares):
        spoken = overheard(form, "owner", family=family)
    for tag, words in spoken.received["owner"]:
        if tag.startswith(("deal", "fix")):
            shares[tag.split("/")[0] + tag.split()[0].split(".")[-1]].append(words.view(-1))
    sent = (words for tag, words in spoken.sent["owner"] if tag.startswith("run0/data"))
    for one in to_user(form, sent, family=family):
        if one.kind != "masked_kv":  # turned shares under its own mask, which it knows
            shares[one.name].append(pack(one.words.reshape(-1), one.nbytes))
    for name, parts in shares.items():
        _check_parts(name, parts)
    _check_tally(spoken)
    columns = list(_columns(spoken))
    for name, words in columns:
        _check_parts(name, [words])
    assert related([one for one in columns if len(one[1]) > FEWEST]) == []


def _check_tally(spoken):
    """The counts behind a prompt are too few to be tested for uniformity, but they are not bare.

    Of uniform words of two bytes three in forty are that small once in 2 million chats.
    """
    (prompt, *_), *_ = passes(spoken.received["owner"], "user")
    plan = Blueprint(tiny("llama").architecture, BRIEF, counts=True)
    tally = unpack(prompt[-plan.tally_bytes :], plan.count_bytes)
    assert int(((tally >= 0) & (tally <= len(PROMPT))).sum()) < 3, "counts"


LEAN = {"family": "gpt2", "precision": BRIEF}


def check_lean(form):
    """The same where the owner computes queries, keys and values from the norm's output."""
    parts, original = defaultdict(list), OwnerParty.attend

    def noting(self, layer, qkv):
        parts["qkv"].append(torch.cat([part.reshape(-1) for part in qkv]))
        return original(self, layer, qkv)

    with mock.patch.object(OwnerParty, "attend", noting):
        spoken = overheard(form, "owner", **LEAN)
    for tag, words in spoken.received["owner"]:
        if tag.startswith(("deal", "fix")):
            parts[tag.split("/")[0] + tag.split()[0].split(".")[-1]].append(words.view(-1))
    for name, words in _columns(spoken):
        parts[name].append(words)
    received = overheard(form, "user", **LEAN).received["user"]
    for one in to_user(form, _data(received), **LEAN):
        assert not one.name.endswith((".q", ".k", ".v"))
        if one.kind in ("masked", "masked_kv"):
            parts[one.name].append(pack(one.words.reshape(-1), one.nbytes))
    for name, found in parts.items():
        _check_parts(name, found)


def check_answer_masks(form):
    """What the user sends is under a mask of its own, whatever its other masks are."""
    original = PrfStream.words

    def wrapped(self, label, *shape):
        drawn = original(self, label, *shape)
        is_inner = label.endswith((".mask", "attention.weights")) or ".fresh." in label
        return torch.zeros_like(drawn) if is_inner else drawn

    with mock.patch.object(PrfStream, "words", wrapped):
        spoken = overheard(form, "owner")
    parts = defaultdict(list)
    for tag, words in spoken.received["owner"]:
        if tag.startswith("fix"):
            parts[tag.split("/")[0] + tag.split()[0].split(".")[-1]].append(words.view(-1))
    for name, words in _columns(spoken):
        if name != "prompt 0":  # the prompt itself, whose mask is one of those
            parts[name].append(words)
    for name, found in parts.items():
        _check_parts(name, found)


def _columns(spoken):
    """Yield the user's messages: those of the prompt, then those of all steps by their place."""
    first, *steps = passes(spoken.received["owner"], "user")
    for number, words in enumerate(first):
        yield f"prompt {number}", words.reshape(-1)
    for number, one in enumerate(zip(*steps, strict=True)):
        yield f"step {number}", torch.cat([words.reshape(-1) for words in one])


def _check_parts(name, parts):
    flat = torch.cat(parts)
    if len(flat) > 300:
        assert complaints(flat.view(-1, 1)) == [], name
        # A chunk at a time, so that what is not uniform is not lost among what is.
        for chunk in flat.split(4096):
            assert len(chunk) < 4096 or complaints(chunk.view(-1, 1)) == [], name
    for first, second in itertools.pairwise(parts[1:]):  # one use and the next
        if len(first) == len(second) > FEWEST:
            assert complaints((first - second).view(-1, 1)) == [], name


def batches(form):
    """Return the batches of the chat that `overheard` runs."""
    yield Batch(number=0, past=0, rows=24, prompt=0, masked_kv=0, form=None)
    past = masked_kv = 24
    for rows in (8, 8, 8, 8, 1):
        batch = Batch(number=1, past=past, rows=rows, prompt=0, masked_kv=masked_kv, form=form)
        yield batch
        past, masked_kv = batch.end, batch.masked_after(rows)


class Sight(NamedTuple):
    """Words of the owner's: shown, scores, masked or masked_kv."""

    kind: str
    name: str
    words: torch.Tensor
    rows: int
    nbytes: int
    bits: int
    heads: int = 0


def to_user(form, messages, *, family="llama", precision=None):
    """Take the owner's messages apart."""
    model = tiny(family)
    plan = Blueprint(model.architecture, precision or fit_precision(model), counts=True)
    for batch in batches(form):
        for run in range(batch.runs):
            rows = batch.rows if batch.is_prompt else 1
            for layer in range(2):
                project, *feeds = exchanges(plan, layer)
                yield from _shown(project, rows, messages)
                yield from _attention(plan.attention(layer, batch, run), layer, rows, messages)
                for exchange in feeds:
                    yield from _shown(exchange, rows, messages)
            if (last := plan.last_norm()) is not None:
                yield from _shown(last, 1, messages)
            yield from _shown(plan.score(), 1, messages)


def _shown(exchange, rows, messages):
    zeros = torch.zeros(rows, sum(one.width for one in exchange.reveals), dtype=torch.int64)
    values = exchange.see(zeros, next(messages))
    for one, value in zip(exchange.reveals, values, strict=True):
        name = f"{exchange.label}.{one.name}"
        yield Sight("shown", name, value, rows, one.nbytes, one.seen_bits, one.heads)


KINDS = {
    Incremental: [["masked_kv"] * 3, ["scores"], ["masked"]],
    Resent: [["masked", "masked", "masked", "scores"]],
}


def _attention(kernel, layer, rows, messages):
    for number, (items, kinds) in enumerate(
        zip(kernel.messages[::2], KINDS[type(kernel)], strict=True)
    ):
        parts = split(next(messages), items)
        for place, (kind, part, item) in enumerate(zip(kinds, parts, items, strict=True)):
            name = f"{layer}.attention {number}.{place}"
            yield Sight(kind, name, part.reshape(-1), rows, item.nbytes, kernel.words.seen_bits)


def check_user(form, family="llama"):
    """What is masked is uniform to the user, and what is shown is in an order of its own."""
    received = overheard(form, "user", family=family).received["user"]
    parts = defaultdict(list)
    for tag, words in received:
        if tag.startswith("id0"):
            parts["table"].append(words.view(torch.uint8).view(-1, 4)[:, :3].reshape(-1))
        if tag.startswith("setup/w"):
            parts[tag].append(words.reshape(-1))
    seen = []
    for one in to_user(form, _data(received), family=family):
        if one.kind in ("masked", "masked_kv"):
            parts[one.name].append(pack(one.words.reshape(-1), one.nbytes))
        else:
            seen.append(one)
    for name, found in parts.items():
        _check_parts(name, found)
    again = overheard(form, "user", family=family).received["user"]
    others = to_user(form, _data(again), family=family)
    others = [one for one in others if one.kind in ("shown", "scores")]
    _check_orders(form, seen, others)


def _data(received):
    return (words for tag, words in received if tag.startswith("run0/data"))


def _check_orders(form, shown, again):
    """Compare two chats about the same text: the same values, in other orders."""
    still, total = defaultdict(int), defaultdict(int)

    def count(name, is_still):
        still[name] += bool(is_still)
        total[name] += 1

    for sight, same in zip(shown, again, strict=True):
        name, one, other, rows = sight.name, sight.words, same.words, sight.rows
        alike = partial(_is_alike, bits=sight.bits)
        if one.dim() == 1:
            pairs = list(_segments(one, other, rows))
            for mine, theirs in pairs:
                if alike(mine, theirs):
                    count(
                        f"keys of {name}, {rows > 1}", torch.equal(mine.argsort(), theirs.argsort())
                    )
            if rows > 1 or form == "incremental":
                for mine, theirs in pairs:
                    count("heads", alike(mine, theirs))
            else:
                _count_groups(pairs, count, alike)
            continue
        for mine, theirs in zip(one, other, strict=True):
            assert alike(mine, theirs), name
            if sight.heads:
                _count_heads(name, mine, theirs, sight.heads, count, alike)
            count(name, torch.equal(mine.argsort(stable=True), theirs.argsort(stable=True)))
    for name, times in total.items():
        # Two places are the fewest there are: 60 of 66 fair coins are alike once in 10^11 times.
        assert still[name] < max(0.9 * times, 3), f"{name}: one order"


def _segments(one, other, rows):
    """Yield the scores of every row and slot of a head, as two chats show them."""
    at = 0
    for row in range(rows):
        size = row + 1 if rows > 1 else len(one) // 4
        for _ in range(4):
            if size >= 6:
                yield one[at : at + size], other[at : at + size]
            at += size


def _is_alike(one, other, *, bits):
    # Masks make no difference to a value but by rounding; counts are whole.
    most = 1 << (bits - 9) if bits else 1
    return int((one.sort().values - other.sort().values).abs().max()) < most


def _count_heads(name, mine, theirs, heads, count, alike):
    """Say whether heads that are kept together stand where they stood, and their features too."""
    one, other = mine.chunk(heads), theirs.chunk(heads)
    for first, second in zip(one, other, strict=True):
        count(f"heads of {name}", alike(first, second))
    for first, second in itertools.product(one, other):
        if alike(first, second):
            is_still = torch.equal(first.argsort(stable=True), second.argsort(stable=True))
            count(f"within {name}", is_still)


def _count_groups(pairs, count, alike):
    """Say whether two groups of two heads stand where they stood, and their members too."""
    one, other = ([pair[side] for pair in pairs] for side in (0, 1))
    for first in (0, 2):
        straight = alike(one[first], other[first])
        crossed = alike(one[first], other[first + 1])
        count("groups", straight or crossed)
        if straight or crossed:
            count("members", straight)


def everything_is_clean(forms=FORMS):
    for form in forms:
        for check in (check_owner, check_answer_masks, check_user):
            check(form)
