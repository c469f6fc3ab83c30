"""What torch has once for all threads, each of which may be a party: tracer and generator."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx, nn

TRACING = threading.RLock()
"""Held while a module is traced, or made of torch's one generator.

Torch changes what it is to call a module, in all threads, and puts back what it found: of two that
trace at once, the later one would put back what the earlier one had changed, for good.
"""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Let what is drawn in the block follow a seed, and no other thread make a module meanwhile."""
    with TRACING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


class Tracer(fx.Tracer):
    """Traces what its own thread calls; other threads run their modules as ever."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # as torch.fx has it
        """Note the call of a module, if it is ours."""
        if threading.get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    # Any: whatever a module holds.
    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Put a note in the place of a weight, if it is we who look at it."""
        if threading.get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)
