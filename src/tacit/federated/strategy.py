"""The server's side on Flower: a strategy over a private aggregation, and what carries its rounds.

A ServerApp changes by one line, the strategy; the carrier goes over the nodes of its grid.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from tacit.dp import Ledger
from tacit.errors import ConfigError, PartyError
from tacit.federated.aggregators import find_aggregator
from tacit.federated.config import RoundConfig, Shaper, round_config
from tacit.federated.contract import HELPER, Aggregate, Meter, VoidRound, run_round
from tacit.federated.node import (
    ARRAYS,
    CLIENT,
    HELLO,
    HELP,
    RECORD,
    TRAIN,
    Flat,
    arrays_like,
    check_spec,
    digest_of,
    flat_arrays,
    to_bytes,
)
from tacit.federated.rounds import count_round
from tacit.federated.spec import HELPERS, FederatedSpec
from tacit.result import Claim
from tacit.ring import Prg

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


_POLL_S = 0.05
_FIRST_WAIT_S = 0.1
START_S = 300.0

_LOG = logging.getLogger(__name__)
_OF_MEANS: tuple[type[FedAvg], ...] = (FedAvg, FedAvgM, FedAdam, FedAdagrad, FedYogi, FedProx)
"""Strategies that look at the mean of the updates alone; others need each client's own."""


@final
class PrivateStrategy(Strategy):
    """A strategy whose rounds are private aggregations.

    It is used as the one beneath it would be::

        strategy = PrivateStrategy(FedAdam(fraction_evaluate=0.0), spec)
        strategy.start(grid, arrays, num_rounds=spec.federated.rounds)
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
        clients = self._spec.federated.clients
        if len(nodes) != clients:
            raise ConfigError(
                f"the strategy chose {len(nodes)} nodes for a round, the spec has {clients} "
                "clients in one; set fraction_train, min_train_nodes and min_available_nodes to "
                "that"
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
        _LOG.info(
            "%s aggregation, privacy %r", self._spec.federated.aggregator, self._spec.privacy.kind
        )
        self._inner.summary()

    def _check_rounds(self, wanted: int) -> None:
        if wanted > self._spec.federated.rounds:
            raise ConfigError(
                f"the spec plans privacy for {self._spec.federated.rounds} rounds, got {wanted}"
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


@final
class FlowerCarrier:
    """A `Carrier` over the nodes of a grid.

    Args:
        grid: of the ServerApp.
        spec: what the run holds to.
        arrays: turns flat weights into the record that the apps expect.
        timeout_s: how long a stage waits; whoever is silent then has dropped out.
        start_s: how long nodes have to come, and each to answer for the first time: Flower makes
            an environment and starts processes there, which is no part of a round.
    """

    def __init__(
        self,
        grid: Grid,
        spec: FederatedSpec,
        arrays: Callable[[Flat], ArrayRecord],
        *,
        timeout_s: float = 60.0,
        start_s: float = START_S,
    ) -> None:
        check_spec(spec)
        self._grid, self._spec, self._arrays = grid, spec, arrays
        self._timeout_s, self._start_s = timeout_s, start_s
        self._called: set[int] = set()
        self._shaper: Shaper | None = None
        self._nodes: dict[int, int] = {}
        self._greeted: set[int] = set()
        self._configs: dict[str, ConfigRecord] = {}
        self._helper: int | None = None
        self._helper_key = b""

    def meet(self) -> None:
        """Wait for all nodes and learn who is who.

        Raises:
            PartyError: not enough nodes came, or another helper than the job pins.
        """
        wanted = self._spec.federated.clients + (self._spec.federated.aggregator in HELPERS)
        deadline = time.monotonic() + self._start_s
        while len(nodes := sorted(self._grid.get_node_ids())) < wanted:
            if time.monotonic() > deadline:
                raise PartyError("server", f"{len(nodes)} nodes came, the job wants {wanted}")
            time.sleep(_FIRST_WAIT_S)
        helper = self.find_helper(nodes)
        clients = [node for node in nodes if node != helper]
        self.seat(clients[: self._spec.federated.clients], {})

    def find_helper(self, nodes: Sequence[int]) -> int | None:
        """Learn which node shuffles or is the authority, where the aggregator needs one.

        Raises:
            PartyError: none is, or another than the job pins.
        """
        name = HELPERS.get(self._spec.federated.aggregator)
        if name is None or self._helper in nodes:
            return self._helper
        roles = dict(self._call(nodes))
        found = [node for node in nodes if roles.get(node, {}).get("is-helper")]
        if not found:
            raise PartyError(name, f"no node has the role of the {name}")
        self._helper = found[0]
        self._helper_key = to_bytes(roles[self._helper]["helper"])
        if self._spec.federated.helper not in (None, self._helper_key):
            raise PartyError(name, "its key is not the one that the job pins")
        said = {node for node, one in roles.items() if one.get("is-helper") is False}
        self._greeted |= {self._helper, *said}
        return self._helper

    def seat(self, nodes: Sequence[int], configs: dict[str, ConfigRecord]) -> None:
        """Take these nodes for the rounds to come, and let their apps have these configs."""
        self._nodes = dict(enumerate(nodes))
        if self._helper is not None:
            self._nodes[HELPER] = self._helper
        self._configs = {name: one for name, one in configs.items() if name != RECORD}

    def _greet(self) -> None:
        """Greet nodes before they get any weights to train.

        One without the mod would send what it learned as it is: it is left out, as if silent.
        """
        unknown = [node for node in self._nodes.values() if node not in self._greeted]
        for node, said in self._call(unknown):
            if said.get("is-helper") is False:
                self._greeted.add(node)
        for node in set(unknown) - self._greeted:
            _LOG.warning("node %d does not answer as the mod does: nothing is sent to it", node)

    def _call(self, nodes: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
        """Ask nodes who they are; those who were not called before are given time to start."""
        wait_s = self._timeout_s if self._called.issuperset(nodes) else self._start_s
        self._called.update(nodes)
        return self._ask({node: {"role": HELLO} for node in nodes}, None, wait_s)

    def carry(self, weights: Tensor, config: RoundConfig, meter: Meter) -> Aggregate:
        """Run a round over the nodes."""
        self._greet()
        flat = weights.detach().cpu().numpy().astype(np.float32)
        aggregator = find_aggregator(self._spec.federated.aggregator)
        if self._shaper is None:
            shapes = {name: array.numpy().shape for name, array in self._arrays(flat).items()}
            self._shaper = Shaper(config.mechanism, list(shapes), list(shapes.values()))
        shaping = self._shaper.shaping(flat)
        bound = shaping.bound or 0.0
        content = self._content({"role": CLIENT}, self._arrays(flat))
        config = replace(config, model=digest_of(content, without=RECORD, bound=bound))
        met = set[int]()  # who has the model of the round

        def exchange(messages: dict[int, bytes]) -> Iterator[tuple[int, bytes | PartyError]]:
            arrays = None if met.issuperset(messages) else self._arrays(flat)
            met.update(messages)
            asked = {
                self._nodes[index]: {
                    "role": HELP if index == HELPER else CLIENT,
                    "index": index,
                    "payload": payload,
                    "helper": self._helper_key,
                    "bound": bound,
                }
                for index, payload in messages.items()
                if self._nodes.get(index) in self._greeted
            }
            index_of = {node: index for index, node in self._nodes.items()}
            for node, said in self._ask(asked, arrays, self._timeout_s):
                yield index_of[node], _said(said)

        for index in range(config.federated.clients):
            meter.down[index] = flat.nbytes
        found = run_round(aggregator.make_server(config, Prg.from_os()), exchange, meter)
        return replace(found, mean=self._shaper.finish(found.mean, shaping))

    def _ask(
        self, asked: dict[int, dict[str, Any]], arrays: ArrayRecord | None, wait_s: float
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Send, and yield answers as they come, so that none waits in memory."""
        messages = [
            Message(content=self._content(said, arrays), dst_node_id=node, message_type=TRAIN)
            for node, said in asked.items()
        ]
        waiting = set(self._grid.push_messages(messages))
        deadline = time.monotonic() + wait_s
        is_over = False
        while waiting and not is_over:
            is_over = time.monotonic() > deadline  # and then a last look: what is there counts
            for reply in self._grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                if reply.has_content() and RECORD in reply.content.config_records:
                    yield reply.metadata.src_node_id, dict(reply.content.config_records[RECORD])
            if waiting and not is_over:
                time.sleep(_POLL_S)

    def _content(self, said: dict[str, Any], arrays: ArrayRecord | None) -> RecordDict:
        content = RecordDict({RECORD: ConfigRecord(said)})
        if arrays is not None and said["role"] == CLIENT:
            content[ARRAYS] = arrays
            for name, config in self._configs.items():
                content[name] = config
        return content


def _said(said: dict[str, Any]) -> bytes | PartyError:
    """Read an answer, or why there is none; whatever a node sends, it is its own loss alone."""
    if isinstance(said.get("answer"), bytes):
        return to_bytes(said["answer"])
    return PartyError(str(said.get("party", "client")), str(said.get("reason", "no reason given")))
