"""A strategy of Flower's over a private aggregation: a ServerApp changes by one line."""

import logging
from collections.abc import Callable, Iterable
from typing import final

import numpy as np
import torch

from tacit.dp import Ledger
from tacit.errors import ConfigError, PartyError
from tacit.federated.arrays import arrays_like, flat_arrays
from tacit.federated.carrier import START_S, FlowerCarrier
from tacit.federated.config import round_config
from tacit.federated.contract import Aggregate, Meter, VoidRound
from tacit.federated.node import ARRAYS
from tacit.federated.rounds import count_round
from tacit.federated.spec import FederatedSpec
from tacit.result import Claim

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import (
        FedAdagrad,
        FedAdam,
        FedAvg,
        FedAvgM,
        FedProx,
        FedYogi,
        Result,
        Strategy,
    )
    from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

_LOG = logging.getLogger(__name__)
_OF_MEANS: tuple[type[FedAvg], ...] = (FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi, FedProx)
"""Strategies that look at the mean of the updates alone; others need each client's own."""


@final
class PrivateStrategy(Strategy):
    """A strategy whose rounds are private aggregations.

    It is used as the one beneath it would be::

        strategy = PrivateStrategy(FedAdam(fraction_evaluate=0.0), spec)
        strategy.start(grid, arrays, num_rounds=spec.rounds)
        print(strategy.claim)

    The strategy beneath it chooses the nodes of a round and their config, and turns the mean into
    the next model; it never sees a client's own update, nor do the metrics of apps leave a node.

    Guarantee: the spec's, as `claim` says after every round. It fails closed: what would get
    round it (evaluation on nodes, strategies that want single updates, more rounds than planned) is
    refused before a message is sent, and a node that does not answer as the mod does gets no
    weights. Who keeps its update to itself is the node's mod: see `client_mod`.
    Cost: the aggregator's.

    Args:
        strategy: FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi or FedProx.
        spec: what the nodes hold to; a round is for as many nodes as it has clients.
        timeout_s: how long a stage of a round waits; whoever is silent then has dropped out.
        start_s: how long a node has to answer for the first time, as its app is still starting.

    Raises:
        ConfigError: they do not go together; says what would.
    """

    def __init__(
        self,
        strategy: FedAvg,
        spec: FederatedSpec,
        *,
        timeout_s: float = 60.0,
        start_s: float = START_S,
    ) -> None:
        _check(strategy, spec)
        self._inner, self._spec = strategy, spec
        self._timeout_s, self._start_s = timeout_s, start_s
        self._carrier: FlowerCarrier | None = None
        self._found: tuple[ArrayRecord, Aggregate] | None = None
        self._begun = 0
        self._void = ""
        self.ledger = Ledger()
        self.claim: Claim | None = None

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds, as Flower's strategies do.

        Raises:
            ConfigError: more rounds than the spec plans, or a config for evaluation on nodes.
            PartyError: no round gave a result; says why the last one did not.
        """
        self._check_rounds(self._begun + num_rounds)
        if evaluate_config is not None:
            raise ConfigError(_NO_EVALUATION)
        self._carrier = FlowerCarrier(
            grid,
            self._spec,
            arrays_like(initial_arrays),
            timeout_s=self._timeout_s,
            start_s=self._start_s,
        )
        self._void = ""
        result = super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, None, evaluate_fn
        )
        if num_rounds and not result.train_metrics_clientapp:  # of a round that was not void
            raise PartyError("server", f"none of {num_rounds} rounds gave a model; {self._void}")
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Run a whole round with the nodes that the strategy beneath chooses; nothing is left."""
        if self._carrier is None:
            raise ConfigError("a private strategy is run by its start, round after round")
        self._check_rounds(self._begun + 1)
        self._begun += 1
        planned = list(self._inner.configure_train(server_round, arrays, config, grid))
        chosen = sorted({message.metadata.dst_node_id for message in planned})
        helper = self._carrier.find_helper(sorted(grid.get_node_ids()))
        nodes = [node for node in chosen if node != helper]
        if len(nodes) != self._spec.clients:
            raise ConfigError(
                f"the strategy chose {len(nodes)} nodes for a round, the spec has "
                f"{self._spec.clients} clients in one; set fraction_train, min_train_nodes and "
                "min_available_nodes to that"
            )
        self._carrier.seat(nodes, dict(planned[0].content.config_records))
        flat = flat_arrays(arrays)
        derived, meter = round_config(self._spec, flat.size), Meter()
        self._found = None
        try:
            self._found = arrays, self._carrier.carry(torch.from_numpy(flat), derived, meter)
        except VoidRound as error:
            _LOG.warning("round %d is void: %s", server_round, error)
            said = dict.fromkeys(map(str, (error, *meter.refused)))
            self._void = f"the last was void: {'; '.join(said)}"
        for refused in meter.refused:
            _LOG.warning("round %d: %s", server_round, refused)
        # By node: a node sits in another place whenever others are chosen.
        self.claim = count_round(self.ledger, derived, meter, [f"node {node}" for node in nodes])
        return []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the mean to the strategy beneath, as if one node had sent it."""
        if self._found is None:
            return None, None
        arrays, found = self._found
        mean = (flat_arrays(arrays) + found.mean).astype(np.float32)
        metrics = MetricRecord({self._inner.weighted_by_key: max(found.weight, 1)})
        metrics["clients"] = len(found.survivors)
        if self.claim is not None and self.claim.epsilon is not None:
            metrics["epsilon"] = self.claim.epsilon
        content = RecordDict({ARRAYS: arrays_like(arrays)(mean), "metrics": metrics})
        reply = Message(content=content, dst_node_id=0, message_type="train")
        return self._inner.aggregate_train(server_round, [reply])

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask no node: its score on its own rows is in no ledger."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return nothing: no node was asked."""
        return None

    def summary(self) -> None:
        """Log what is promised, and the strategy beneath."""
        _LOG.info("%s aggregation, privacy %r", self._spec.aggregator, self._spec.privacy.kind)
        self._inner.summary()

    def _check_rounds(self, wanted: int) -> None:
        if wanted > self._spec.rounds:
            raise ConfigError(
                f"the spec plans privacy for {self._spec.rounds} rounds, got {wanted}"
            )


_NO_EVALUATION = (
    "scores on the nodes' rows would leave without noise and are in no claim: set "
    "fraction_evaluate=0.0, and pass evaluate_fn to test on rows of the server's own"
)


def _check(strategy: FedAvg, spec: FederatedSpec) -> None:
    if type(strategy) not in _OF_MEANS:
        names = ", ".join(one.__name__ for one in _OF_MEANS)
        raise ConfigError(
            f"wanted a strategy that needs no more than the mean of the updates, one of {names}, "
            f"got {type(strategy).__name__}"
        )
    if strategy.fraction_evaluate != 0:
        raise ConfigError(_NO_EVALUATION)
    if strategy.train_metrics_aggr_fn is not aggregate_metricrecords:
        raise ConfigError("metrics of apps do not leave their nodes: no train_metrics_aggr_fn")
    if strategy.arrayrecord_key != ARRAYS:
        raise ConfigError(f"nodes look for {ARRAYS!r}, got {strategy.arrayrecord_key!r}")
    if spec.privacy.kind == "record" and isinstance(strategy, FedProx):
        raise ConfigError("a silo trains by its spec, which has no proximal term: not FedProx")
