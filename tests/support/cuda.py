"""What only a GPU has, on a processor: the Triton kernels of a pass, and CUDA graphs."""

from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tacit import ring
from tacit.llm.permuted import kernels
from tacit.llm.sealed import table
from tacit.mpc import OpeningCache
from tacit.mpc.material import recorded_dealing, recording
from tacit.mpc.material.recorded_dealing import DealingRecorder
from tacit.mpc.material.recorder import Recorder
from tacit.ring import product

# The kernels, so that what calls them can be tested on a CPU.
# A tensor stands for a pointer: a kernel may read behind the end of a view. `test_kernels` compares
# the kernels themselves with what they stand for, on a GPU.


def behind(pointer):
    """Return all memory from a tensor's first number on."""
    flat = torch.empty(0, dtype=pointer.dtype).set_(pointer.untyped_storage())
    return flat[pointer.storage_offset() :]


def places(i, n, nbytes):
    """Return where the bytes of words i of n lie: (words, bytes)."""
    if nbytes == 8:
        return 8 * i.unsqueeze(1) + torch.arange(8)
    out, at = [], 0
    for plane in (4, 2, 1):
        if nbytes & plane:
            out.append(at * n + plane * i.unsqueeze(1) + torch.arange(plane))
            at += plane
    return torch.cat(out, 1)


def load(octets, at, i, n, nbytes):
    got = behind(octets)[at + places(i, n, nbytes)].long()
    word = (got << (8 * torch.arange(nbytes))).sum(1)
    return (word << (64 - 8 * nbytes)) >> (64 - 8 * nbytes)


def store(octets, at, i, n, word, nbytes):
    shifted = (word.unsqueeze(1) >> (8 * torch.arange(nbytes))) & 255
    behind(octets)[at + places(i, n, nbytes)] = shifted.to(torch.uint8)


def peaked(word, peak):
    peak.copy_(torch.maximum(peak, word.abs().max()))


def show(
    first, second, split, first_drop, second_drop, where, reveal_correction, out, at, n, NBYTES, **_
):
    i, place = torch.arange(n), behind(where)[:n]
    is_first = place < split
    a = behind(first)[torch.where(is_first, place, 0)] >> first_drop
    b = behind(second)[torch.where(is_first, 0, place - split)] >> second_drop
    store(out, at, i, n, torch.where(is_first, a, b) + behind(reveal_correction)[:n], NBYTES)


def take(octets, at, answer_correction, where, out, n, NBYTES, **_):
    word = load(octets, at, torch.arange(n), n, NBYTES) + behind(answer_correction)[:n]
    behind(out)[behind(where)[:n]] = word


def add(octets, at, one, two, out, place, n, drop, ADDS, IN_CACHE, NBYTES, **_):
    i = torch.arange(n)
    word, row = load(octets, at, i, n, NBYTES), i + int(place) * n if IN_CACHE else i
    if ADDS >= 1:
        word = word + behind(one)[row]
    if ADDS >= 2:
        word = word + behind(two)[i]
    behind(out)[row] = word >> drop


def see(octets, at, reveal_mask, out, peak, n, more, scale, NBYTES, **_):
    word = load(octets, at, torch.arange(n), n, NBYTES) + behind(reveal_mask)[:n] + more
    word = (word << (64 - 8 * NBYTES)) >> (64 - 8 * NBYTES)
    peaked(word, peak)
    behind(out)[:n] = word.double() * scale


def spread(x, eps, stats, n, IS_LAYER, **_):
    value = behind(x)[:n]
    mean = value.mean() if IS_LAYER else value.new_zeros(())
    stats[0], stats[1] = mean, ((value - mean).square().mean() + eps[0]).sqrt()


def answer(
    values, stats, answer_mask, out, at, first, total, n, scale, CENTRES, DIVIDES, NBYTES, **_
):
    value = behind(values)[:n]
    value = value - stats[0] if CENTRES else value
    value = value / stats[1] if DIVIDES else value
    word = (value * scale).round().long() - behind(answer_mask)[:n]
    store(out, at, first + torch.arange(n), total, word, NBYTES)


def mask_heads(
    words, cos, sin, blind, kept, out, place, at, n, drop, DIM, HALF, IN_CACHE, NBYTES, **_
):
    i = torch.arange(n)
    word = behind(words)[i]
    if HALF > 0:
        d = i % DIM
        is_first = d % (2 * HALF) < HALF
        other = behind(words)[torch.where(is_first, i + HALF, i - HALF)]
        word = word * behind(cos)[d] + torch.where(is_first, -other, other) * behind(sin)[d]
    word = word >> drop
    behind(kept)[i + (int(place) * n if IN_CACHE else 0)] = word
    store(out, at, i, n, word + behind(blind)[i], NBYTES)


def heads_of(cache, keys, groups, size, dim):
    rows = behind(cache)[: keys * groups * dim].view(keys, groups, dim)
    return rows.repeat_interleave(size, 1)  # (keys, heads, dim)


def dots(query, cache, place, GROUPS, SIZE, DIM):
    keys = int(place) + 1
    q = behind(query)[: GROUPS * SIZE * DIM].view(-1, DIM)
    return (heads_of(cache, keys, GROUPS, SIZE, DIM) * q).sum(2).T.reshape(-1)


def scores(query, cached, out, place, drop, GROUPS, SIZE, DIM, **_):
    word = dots(query, cached, place, GROUPS, SIZE, DIM) >> drop
    behind(out)[: len(word)] = word


def score_shares(
    asked, masks, query, masked_kv, split, out, place, drop, GROUPS, SIZE, DIM, NBYTES, **_
):
    sizes = (place, GROUPS, SIZE, DIM)
    word = (dots(asked, masks, *sizes) + dots(query, masked_kv, *sizes)) >> drop
    i = torch.arange(len(word))
    store(out, 0, i, len(i), word - behind(split)[i], NBYTES)


def reshow(own, octets, permutation, delta, out, place, HEADS, NBYTES, **_):
    n = HEADS * (int(place) + 1)
    i, at = torch.arange(n), behind(permutation)[:n]
    word = behind(own)[at] + load(octets, 0, at, n, NBYTES)
    store(out, 0, i, n, word + behind(delta)[i], NBYTES)


def reweigh(octets, answer_correction, permutation, blind, kept, out, place, HEADS, NBYTES, **_):
    n = HEADS * (int(place) + 1)
    i, at = torch.arange(n), behind(permutation)[:n]
    word = load(octets, 0, i, n, NBYTES) + behind(answer_correction)[i]
    behind(kept)[at] = word
    store(out, 0, at, n, word + behind(blind)[at], NBYTES)


def weigh(
    heads, octets, reveal_mask, answer_mask, out, peak, place, seen_scale, scale, SEEN, NBYTES, **_
):
    keys = int(place) + 1
    n = heads * keys
    i = torch.arange(n)
    word = load(octets, 0, i, n, SEEN) + behind(reveal_mask)[i]
    word = (word << (64 - 8 * SEEN)) >> (64 - 8 * SEEN)
    peaked(word, peak)
    weight = (word.double() * seen_scale).view(heads, keys).softmax(1).view(-1)
    store(out, 0, i, n, (weight * scale).round().long() - behind(answer_mask)[i], NBYTES)


def mix(weights, values, out, place, GROUPS, SIZE, DIM, **_):
    keys, heads = int(place) + 1, GROUPS * SIZE
    w = behind(weights)[: heads * keys].view(heads, keys)
    mixed = (w.T.unsqueeze(2) * heads_of(values, keys, GROUPS, SIZE, DIM)).sum(0)
    behind(out)[: heads * DIM] = mixed.reshape(-1)


def mixed(weights, masked_kv, octets, masks, rest, out, place, GROUPS, SIZE, DIM, NBYTES, **_):
    keys, heads = int(place) + 1, GROUPS * SIZE
    sizes = (place, GROUPS, SIZE, DIM)
    one, two = torch.empty(2, heads * DIM, dtype=torch.int64)
    mix(weights, masked_kv, one, *sizes)
    sent = load(octets, 0, torch.arange(heads * keys), heads * keys, NBYTES)
    mix(sent, masks, two, *sizes)
    i = torch.arange(heads * DIM)
    store(out, 0, i, len(i), one + two - behind(rest)[i], NBYTES)


class Launch:
    """Take a grid, then arguments, as a kernel does."""

    def __init__(self, function):
        self._function = function

    def __getitem__(self, grid):
        if self._function is weigh:  # one program for each head
            return lambda *arguments, **sizes: weigh(grid[0], *arguments, **sizes)
        return self._function


KERNELS = (
    *(show, take, add, see, spread, answer),
    *(mask_heads, scores, score_shares, reshow, reweigh, weigh, mix, mixed),
)


def emulated():
    """Let passes of one row go by these kernels, on a CPU."""
    stack = ExitStack()
    for one in KERNELS:
        fake = mock.patch.object(kernels, one.__name__, Launch(one), create=True)
        stack.enter_context(fake)
    stack.enter_context(mock.patch.object(kernels, "is_available", return_value=True))
    return stack


# A stand-in for graphs: records the operations of torch on a processor, and plays them.


class _Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            raise AssertionError("a value decides what is launched: no graph can be played")
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out


class OperationTape:
    """Plays what was recorded on the same memory; the first time it was computed already."""

    def __init__(self, device, *, is_computed=True):
        self._recorder, self._is_computed = None, is_computed

    @contextmanager
    def running(self):
        try:
            yield
        finally:
            if self._recorder is not None:
                self.end()

    def renew(self):
        pass

    def begin(self):
        self._recorder = _Recorder()
        self._recorder.__enter__()

    def end(self):
        recorder, self._recorder = self._recorder, None
        recorder.__exit__(None, None, None)
        plays = iter((lambda: None,) if self._is_computed else ())

        def play():
            next(plays, lambda: _play(recorder.calls))()

        return play

    def wait(self):
        pass


def _play(calls):
    for func, args, kwargs, out in calls:
        given = {one.untyped_storage().data_ptr() for one in _tensors((args, kwargs))}
        for there, new in zip(_tensors(out), _tensors(func(*args, **kwargs)), strict=True):
            # Views and what is done in place lie where they lay.
            if there.untyped_storage().data_ptr() not in given:
                there.copy_(new)


def _tensors(tree):
    return [one for one in tree_flatten(tree)[0] if isinstance(one, torch.Tensor)]


def pack_bits(bits):
    """Do as `ring.pack_bits`, by operations of torch."""
    flat = bits.reshape(-1)
    padded = torch.zeros(-(-flat.numel() // 8) * 8, dtype=torch.uint8)
    padded[: flat.numel()] = flat != 0
    weights = 1 << torch.arange(8, dtype=torch.uint8)
    return (padded.view(-1, 8) * weights).sum(1, dtype=torch.uint8)


def unpack_bits(packed, count):
    """Do as `ring.unpack_bits`, by operations of torch."""
    shifts = torch.arange(8, dtype=torch.uint8)
    return ((packed.reshape(-1)[:, None] >> shifts) & 1).view(-1)[:count].clone()


def patch_numpy(monkeypatch):
    """Let nothing be computed by NumPy, which a tape does not see."""
    monkeypatch.setattr(product, "multiply_narrow", lambda rows, right: rows @ right.long())
    monkeypatch.setattr(ring, "pack_bits", pack_bits)
    monkeypatch.setattr(ring, "unpack_bits", unpack_bits)


def playing_passes(monkeypatch):
    """Record sealed passes on the processor; return each as it comes: (party, was played, run)."""
    patch_numpy(monkeypatch)
    counts = []
    original = recording.Recording.play

    def play(self, run, program):
        counts.append((self.session.me, self._result is not None, run))
        return original(self, run, program)

    monkeypatch.setattr(recording.Recording, "play", play)
    monkeypatch.setattr(
        table,
        "recorder_on",
        lambda device, session, material: Recorder(
            session, torch.device("cpu"), material=material, tape=OperationTape
        ),
    )
    monkeypatch.setattr(
        table,
        "dealing_on",
        lambda device, session: DealingRecorder(
            session, torch.device("cpu"), tape=partial(OperationTape, is_computed=False)
        ),
    )
    dealt = recorded_dealing.RecordedDealing.play

    def deal(self, run):
        counts.append(("dealer", True, run))
        return dealt(self, run)

    monkeypatch.setattr(recorded_dealing.RecordedDealing, "play", deal)
    monkeypatch.setattr(OpeningCache, "has_factor", lambda cache, mask: True)
    return counts
