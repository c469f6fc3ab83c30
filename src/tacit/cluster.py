"""Work on the machines of a Ray cluster, behind the interface of `concurrent.futures`."""

import logging
import socket
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar, final

from tacit.errors import ConfigError, DataError, TacitError
from tacit.extras import install_hint

LOCAL = "local"
"""The address that stands for a cluster of this machine's own cores."""
_PATIENCE_S = 5.0

_P = ParamSpec("_P")
_T = TypeVar("_T")


@final
class RayExecutor(Executor):
    """Runs every call as one task of a cluster, on one core of any of its machines."""

    def __init__(self, ray: Any) -> None:  # Ray is untyped, hence Any
        self._ray = ray
        self._call = ray.remote(num_cpus=1)(_call)

    @property
    def cores(self) -> int:
        """Return how many tasks the cluster runs at once."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def share(self, value: _T) -> _T:
        """Send a value to the cluster once; what comes back stands for it in `submit`."""
        handle: _T = self._ray.put(value)
        return handle

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "Future[_T]":
        """Start a call on the cluster. Arrays that arrive there are read-only."""
        future: Future[_T] = self._call.remote(fn, *args, **kwargs).future()
        return future


@contextmanager
def open_cluster(address: str) -> Iterator[RayExecutor]:
    """Join a Ray cluster for the time of the block.

    Functions, arguments and results travel in Ray's own form, which its machines unpack as code,
    unencrypted unless the cluster is set up otherwise: use one that you trust with both. Every
    machine must have this version of tacit.

    Args:
        address: "local" for a cluster of this machine, "auto" for the one that runs on it, else
            where the cluster is.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster.
        DataError: a task failed on the cluster. An error of tacit's own comes back as it was.
    """
    ray = _import_ray()
    is_ours = not ray.is_initialized()
    if is_ours:
        _join(ray, address)
    try:
        yield RayExecutor(ray)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", error)
        if isinstance(cause, TacitError):
            raise cause from None
        raise DataError(f"work on the Ray cluster at {address!r} failed: {cause}") from None
    finally:
        if is_ours:
            ray.shutdown()


# Arguments and result are the callable's own, hence Any.
def _call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def _import_ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError(
            f"work on several machines needs Ray; run: {install_hint('ray')}"
        ) from None
    return ray


def _join(ray: Any, address: str) -> None:
    _check_reachable(address)
    dashboard = {"include_dashboard": False} if address == LOCAL else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about its own future settings
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **dashboard)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _missing(address, error) from error


def _check_reachable(address: str) -> None:
    """Try the port before Ray does: it would go on trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host:
        return  # "local", or "auto": Ray knows where
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE_S).close()
    except (OSError, ValueError) as error:
        raise _missing(address, error) from error


def _missing(address: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"no Ray cluster at {address!r}: {error}; start one with: ray start --head, or use the "
        f"address {LOCAL}"
    )
