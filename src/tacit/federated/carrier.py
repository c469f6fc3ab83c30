"""The server's side on Flower: a carrier over the nodes of a ServerApp's grid."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
from torch import Tensor

from tacit.errors import ConfigError, PartyError
from tacit.federated.aggregators import find_aggregator
from tacit.federated.arrays import Flat, digest_of
from tacit.federated.config import RoundConfig
from tacit.federated.contract import HELPER, Aggregate, Meter, run_round
from tacit.federated.node import (
    ARRAYS,
    CLIENT,
    HELLO,
    HELP,
    RECORD,
    TRAIN,
    check_spec,
    to_bytes,
)
from tacit.federated.shaping import Shaper
from tacit.federated.spec import HELPERS, FederatedSpec
from tacit.ring import Prg

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.serverapp import Grid
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

_LOG = logging.getLogger(__name__)
_POLL_S = 0.05
_FIRST_WAIT_S = 0.1
START_S = 300.0


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
        wanted = self._spec.clients + (self._spec.aggregator in HELPERS)
        deadline = time.monotonic() + self._start_s
        while len(nodes := sorted(self._grid.get_node_ids())) < wanted:
            if time.monotonic() > deadline:
                raise PartyError("server", f"{len(nodes)} nodes came, the job wants {wanted}")
            time.sleep(_FIRST_WAIT_S)
        helper = self.find_helper(nodes)
        clients = [node for node in nodes if node != helper]
        self.seat(clients[: self._spec.clients], {})

    def find_helper(self, nodes: Sequence[int]) -> int | None:
        """Learn which node shuffles or is the authority, where the aggregator needs one.

        Raises:
            PartyError: none is, or another than the job pins.
        """
        name = HELPERS.get(self._spec.aggregator)
        if name is None or self._helper in nodes:
            return self._helper
        roles = dict(self._call(nodes))
        found = [node for node in nodes if roles.get(node, {}).get("is-helper")]
        if not found:
            raise PartyError(name, f"no node has the role of the {name}")
        self._helper = found[0]
        self._helper_key = to_bytes(roles[self._helper]["helper"])
        if self._spec.helper not in (None, self._helper_key):
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
        aggregator = find_aggregator(self._spec.aggregator)
        if self._shaper is None:
            shapes = {name: array.numpy().shape for name, array in self._arrays(flat).items()}
            self._shaper = Shaper(config.mechanism, list(shapes), list(shapes.values()))
        outlook = self._shaper.outlook(flat)
        bound = outlook.bound or 0.0
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

        for index in range(config.clients):
            meter.down[index] = flat.nbytes
        found = run_round(aggregator.make_server(config, Prg.from_os()), exchange, meter)
        return replace(found, mean=self._shaper.finish(found.mean, outlook))

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
