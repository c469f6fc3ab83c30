"""What a job asks for by way of privacy, checked before anything is worked out."""

import math
from dataclasses import dataclass, field
from typing import Literal

from tacit.errors import ConfigError
from tacit.learn.federated.shuffled.plan import Method
from tacit.learn.federated.training import Recipe

Privacy = Literal["none", "central", "local", "local-adaptive", "shuffle", "record"]
PRIVACIES: tuple[Privacy, ...] = (
    "none",
    "central",
    "local",
    "local-adaptive",
    "shuffle",
    "record",
)
Mechanism = Literal["gaussian", "laplace", "binomial", "nbafl", "objective"]

_MECHANISMS: dict[str, tuple[str, ...]] = {
    "gaussian": PRIVACIES,
    "laplace": ("local", "local-adaptive"),
    "binomial": ("central",),
    "nbafl": ("local",),
    "objective": ("local",),
}


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """How "local-adaptive" noise follows the contributions of attributes or layers.

    Attributes:
        by: "attributes" gives the columns of every weight matrix their own noise, "layers" every
            layer its own clip and noise.
        relevance: "model" reads the contributions off the global model and public inputs, which
            costs nothing; "clients" asks every client for those on its own rows, once.
        relevance_epsilon: the price of asking, for "clients".
        p: parameters of small contribution get noise with this probability; below 1 there is no
            guarantee.
        threshold: below which share of the average a contribution is small, for ``p``.
        select: send only so many entries of an update, chosen by the sparse vector technique; 0
            sends all.
    """

    by: Literal["attributes", "layers"] = "attributes"
    relevance: Literal["model", "clients"] = "model"
    relevance_epsilon: float | None = None
    p: float = 1.0
    threshold: float = 0.5
    select: int = 0

    def __post_init__(self) -> None:
        if (self.relevance == "clients") != (self.relevance_epsilon is not None):
            raise ConfigError("relevance 'clients' and relevance_epsilon go together")
        if self.relevance_epsilon is not None and not 0 < self.relevance_epsilon <= 200:
            raise ConfigError(
                f"relevance_epsilon must be above 0 and at most 200, got {self.relevance_epsilon}"
            )
        if not 0 <= self.p <= 1:
            raise ConfigError(f"p must lie between 0 and 1, got {self.p}")
        if self.select < 0 or (self.select and self.p < 1):
            raise ConfigError(f"select must be 0 or more, and goes with p = 1, got {self.select}")


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a job asks for.

    Attributes:
        kind: who is trusted with what.
        clip: largest L2 norm of an update, and for "record" of one record's gradient; longer ones
            are shortened to it.
        epsilon: the ε not to exceed at the end; not for "none".
        delta: the δ that goes with it.
        accountant: who computes ε; the first that can, if not given.
        reports: how many reports a client makes in a round, for "shuffle".
        method: how such a report is made.
        mechanism: the shape of the noise; "objective" puts it into the training of linear models,
            and is about one record of a client.
        records: fewest rows of a client, for the noise of "nbafl"; for "record", how many rows a
            client is taken to have: a public number, from which the sampling rate follows.
        quantile: let the clip follow this quantile of the updates' norms, for "central"; the
            clients pay for it with one noisy bit a round.
        adaptive: for "local-adaptive".
        local: how a client trains in a round, for "record": its steps spend ε.
    """

    kind: Privacy
    clip: float | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    accountant: str | None = None
    reports: int = 8
    method: Method = "direction"
    mechanism: Mechanism = "gaussian"
    records: int | None = None
    quantile: float | None = None
    adaptive: Adaptive = field(default_factory=Adaptive)
    local: Recipe | None = None

    def __post_init__(self) -> None:
        if self.kind not in PRIVACIES:
            raise ConfigError(f"privacy must be one of {', '.join(PRIVACIES)}, got {self.kind!r}")
        if self.kind != "none" and (self.epsilon is None or self.clip is None):
            raise ConfigError(
                f"privacy {self.kind!r} wants target_epsilon and clip, got {self.epsilon} and "
                f"{self.clip}"
            )
        if self.kind == "none" and self.epsilon is not None:
            raise ConfigError("privacy 'none' has no ε; leave target_epsilon out")
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise ConfigError(f"clip must be positive and finite, got {self.clip}")
        self._check_mechanism()

    def _check_mechanism(self) -> None:
        if self.kind not in _MECHANISMS.get(self.mechanism, ()):
            fits = [name for name, kinds in _MECHANISMS.items() if self.kind in kinds]
            raise ConfigError(
                f"privacy {self.kind!r} goes with mechanism {' or '.join(fits)}, "
                f"got {self.mechanism!r}"
            )
        counts = self.mechanism == "nbafl" or self.kind == "record"
        if counts != (self.records is not None):
            raise ConfigError(
                "records, how many rows a client has, goes with privacy 'record' and with "
                f"mechanism 'nbafl', and they with it; got {self.records} with {self.kind!r} and "
                f"{self.mechanism!r}"
            )
        if self.records is not None and self.records < 1:
            raise ConfigError(f"records must be 1 or more, got {self.records}")
        if self.quantile is not None and (self.kind != "central" or not 0 < self.quantile < 1):
            raise ConfigError(
                f"quantile lies between 0 and 1 and goes with privacy 'central', got "
                f"{self.quantile} with {self.kind!r}"
            )
        if self.kind != "local-adaptive" and self.adaptive != Adaptive():
            raise ConfigError(f"adaptive goes with privacy 'local-adaptive', got {self.kind!r}")
