"""What a benchmark measures: cases, and the peers they are measured against."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError, TacitError

OURS = "tacit"


class NotMeasured(TacitError):
    """This contender cannot be measured here; the row says why and the run goes on."""


@dataclass(frozen=True)
class InlinePeer:
    """A peer that runs in our own process, e.g. bare torch; it needs no installation."""

    name: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class VenvPeer:
    """Another project's code, in its own virtual environment.

    ``script arguments…`` is started once per case. It reads lines from standard input and answers
    each line ``measure`` with one line holding a JSON object, ``{"value": number}``; other lines
    are ignored. A script that answers once without reading and exits is started anew for every
    measurement. Peers of one name share an environment and must agree on what it holds.
    """

    name: str
    requirements: tuple[str, ...]
    script: Path
    arguments: tuple[str, ...]
    pip_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # The name becomes a folder that is emptied before it is built.
        if not self.name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(
                f"a peer's name consists of letters, digits, - and _, got {self.name!r}"
            )


Peer = InlinePeer | VenvPeer


@dataclass(frozen=True)
class Case:
    """One quantity of ours beside the same quantity of others.

    Attributes:
        name: what is done, e.g. "matmul 1024".
        metric: what is measured of it, e.g. "time".
        unit: the unit of every value, e.g. "ms".
        ours: measures us once and returns the value; may raise NotMeasured.
        peers: whom we compare with.
        goal: the largest acceptable ratio to the best peer; without peers, the worst acceptable
            value.
        higher_is_better: true for throughputs, false for times and sizes.
    """

    name: str
    metric: str
    unit: str
    ours: Callable[[], float]
    peers: tuple[Peer, ...] = ()
    goal: float | None = None
    higher_is_better: bool = False

    def __post_init__(self) -> None:
        names = [OURS, *(peer.name for peer in self.peers)]
        if len(set(names)) < len(names):
            raise ConfigError(f"case {self.name!r}: the peers need names of their own, got {names}")
