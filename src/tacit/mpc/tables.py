"""Public tables on a device: laid out once, and kept by whoever records launches that read them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from torch import Tensor

_KEPT: ContextVar[list[Tensor] | None] = ContextVar("tables of a recording", default=None)


def laid_out(table: Tensor, device: torch.device) -> Tensor:
    """Copy a table to a device, also while launches are recorded: this copy is none of them."""
    if device.type != "cuda":
        return table.to(device)
    with torch.cuda.stream(_beside(device)):
        return table.to(device)


@cache
def _beside(device: torch.device) -> torch.cuda.Stream:
    """Make one stream for all copies, so that what they took and freed is taken again."""
    # Of another priority than those that are recorded: torch hands streams out in turn.
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def kept(*tables: Tensor) -> tuple[Tensor, ...]:
    """Hand out tables of a memo, which may forget them: a recording must not."""
    recorded = _KEPT.get()
    if recorded is not None:
        recorded.extend(tables)
    return tables


@contextmanager
def keeping(tables: list[Tensor]) -> Iterator[None]:
    """Keep all tables that are handed out meanwhile."""
    token = _KEPT.set(tables)
    try:
        yield
    finally:
        _KEPT.reset(token)
