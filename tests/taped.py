"""A stand-in for CUDA graphs: records the operations of torch on a processor, and plays them."""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from tacit import ring
from tacit.ring import product


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
