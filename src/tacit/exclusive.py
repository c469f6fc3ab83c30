"""What torch has once for all threads of a process, each of which may be a party."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

TORCH_LOCK = threading.RLock()
"""Held while a module is traced, or torch's one generator is seeded and drawn from.

Torch changes what it is to call a module, in all threads, and puts back what it found: of two that
trace at once, the later one would put back what the earlier one had changed, for good. Two that
save the generator's state at once have been seen to wait for each other for ever.
"""


@contextmanager
def seeded(seed: int, devices: Sequence[int] = ()) -> Iterator[None]:
    """Let what is drawn in the block follow a seed, in no other thread, and put back what was."""
    with TORCH_LOCK, torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield
