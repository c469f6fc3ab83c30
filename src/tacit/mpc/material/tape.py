"""What records launches without computing them, and plays them: CUDA graphs."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol, final

import torch

_ONE_AT_A_TIME = threading.Lock()  # what one thread records, another's recording may not disturb


class LaunchTape(Protocol):
    """Records what is launched, without computing it, and plays it."""

    def running(self) -> AbstractContextManager[None]:
        """Be where launches are recorded and played; what failed within is forgotten."""
        ...

    def renew(self) -> None:
        """Take other memory from here on: what was recorded before goes with its own."""
        ...

    def begin(self) -> None:
        """Record from here on."""
        ...

    def end(self) -> Callable[[], None]:
        """Stop recording, and return what plays it."""
        ...

    def wait(self) -> None:
        """Wait until all that was played is done."""
        ...


@final
class CudaTape:
    """Record CUDA graphs, on a stream and in memory of their own."""

    def __init__(self, device: torch.device) -> None:
        # Between two messages there may be nothing to compute.
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._graph: torch.cuda.CUDAGraph | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Launch on the stream of the graphs."""
        with torch.cuda.stream(self._stream):
            try:
                yield
            finally:
                if self._graph is not None:
                    with suppress(RuntimeError):
                        self.end()

    def renew(self) -> None:
        """Take another pool of memory."""
        self._pool = torch.cuda.graph_pool_handle()

    def begin(self) -> None:
        """Begin a graph; tables that it reads for the first time may be copied meanwhile."""
        _ONE_AT_A_TIME.acquire()
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin(pool=self._pool, capture_error_mode="relaxed")

    def end(self) -> Callable[[], None]:
        """End the graph."""
        graph, self._graph = self._graph, None
        assert graph is not None  # noqa: S101 - it was begun
        try:
            graph.capture_end()
        finally:
            _ONE_AT_A_TIME.release()
        return graph.replay

    def wait(self) -> None:
        """Wait for the stream."""
        self._stream.synchronize()
