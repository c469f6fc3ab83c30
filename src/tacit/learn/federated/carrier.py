"""The server's side on Flower: a carrier over the nodes of a ServerApp's grid."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, final

import numpy as np
from torch import Tensor

from tacit.errors import ConfigError, PartyError
from tacit.learn.federated.aggregators import find_aggregator
from tacit.learn.federated.arrays import Flat
from tacit.learn.federated.contract import Aggregate, Meter, run_round
from tacit.learn.federated.node import ARRAYS, RECORD, TRAIN, check_policy, to_bytes
from tacit.learn.federated.policy import Policy
from tacit.learn.federated.shaping import Shaper
from tacit.learn.federated.shuffled import SHUFFLER
from tacit.learn.federated.terms import Terms
from tacit.ring import Prg

try:
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
    from flwr.serverapp import Grid
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

_POLL_S = 0.05
_FIRST_WAIT_S = 0.1


@final
class FlowerCarrier:
    """A `Carrier` over the nodes of a grid.

    Args:
        grid: of the ServerApp.
        policy: what the run holds to.
        arrays: turns flat weights into the record that the apps expect.
        timeout_s: how long a stage waits; whoever is silent then has dropped out.
    """

    def __init__(
        self,
        grid: Grid,
        policy: Policy,
        arrays: Callable[[Flat], ArrayRecord],
        *,
        timeout_s: float = 60.0,
    ) -> None:
        check_policy(policy)
        self._grid, self._policy, self._arrays = grid, policy, arrays
        self._timeout_s = timeout_s
        self._shaper: Shaper | None = None
        self._nodes: dict[int, int] = {}
        self._shuffler_key = b""

    def meet(self) -> None:
        """Wait for all nodes and learn who is who.

        Raises:
            PartyError: not enough nodes came, or another shuffler than the job pins.
        """
        wanted = self._policy.clients + (self._policy.aggregator == "shuffled")
        deadline = time.monotonic() + self._timeout_s
        while len(nodes := sorted(self._grid.get_node_ids())) < wanted:
            if time.monotonic() > deadline:
                raise PartyError("server", f"{len(nodes)} nodes came, the job wants {wanted}")
            time.sleep(_FIRST_WAIT_S)
        if self._policy.aggregator != "shuffled":
            self._nodes = dict(enumerate(nodes[: self._policy.clients]))
            return
        roles = dict(self._ask({node: {"role": "hello"} for node in nodes}, None))
        shufflers = [node for node in nodes if roles.get(node, {}).get("is-shuffler")]
        if not shufflers:
            raise PartyError("shuffler", "no node has the role of the shuffler")
        clients = [node for node in nodes if node in roles and node not in shufflers]
        self._nodes = dict(enumerate(clients[: self._policy.clients]))
        self._nodes[SHUFFLER] = shufflers[0]
        self._shuffler_key = to_bytes(roles[shufflers[0]]["shuffler"])
        if self._policy.shuffler not in (None, self._shuffler_key):
            raise PartyError("shuffler", "its key is not the one that the job pins")

    def carry(self, weights: Tensor, terms: Terms, meter: Meter) -> Aggregate:
        """Run a round over the nodes."""
        flat = weights.detach().cpu().numpy().astype(np.float32)
        aggregator = find_aggregator(self._policy.aggregator)
        if self._shaper is None:
            shapes = {name: array.numpy().shape for name, array in self._arrays(flat).items()}
            self._shaper = Shaper(terms.promise, list(shapes), list(shapes.values()))
        outlook = self._shaper.outlook(flat)
        is_first = True

        def exchange(messages: dict[int, bytes]) -> Iterator[tuple[int, bytes | PartyError]]:
            nonlocal is_first
            arrays = self._arrays(flat) if is_first else None
            is_first = False
            asked = {
                self._nodes[index]: {
                    "role": "shuffle" if index == SHUFFLER else "client",
                    "index": index,
                    "payload": payload,
                    "shuffler": self._shuffler_key,
                    "bound": outlook.bound or 0.0,
                }
                for index, payload in messages.items()
                if index in self._nodes
            }
            index_of = {node: index for index, node in self._nodes.items()}
            for node, said in self._ask(asked, arrays):
                yield index_of[node], _said(said)

        for index in range(terms.clients):
            meter.down[index] = flat.nbytes
        found = run_round(aggregator.make_server(terms, Prg.from_os()), exchange, meter)
        return replace(found, mean=self._shaper.finish(found.mean, outlook))

    def _ask(
        self, asked: dict[int, dict[str, Any]], arrays: ArrayRecord | None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Send, and yield answers as they come, so that none waits in memory."""
        messages = [
            Message(content=_content(said, arrays), dst_node_id=node, message_type=TRAIN)
            for node, said in asked.items()
        ]
        waiting = set(self._grid.push_messages(messages))
        deadline = time.monotonic() + self._timeout_s
        is_over = False
        while waiting and not is_over:
            is_over = time.monotonic() > deadline  # and then a last look: what is there counts
            for reply in self._grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                if reply.has_content() and RECORD in reply.content.config_records:
                    yield reply.metadata.src_node_id, dict(reply.content.config_records[RECORD])
            if waiting and not is_over:
                time.sleep(_POLL_S)


def _content(said: dict[str, Any], arrays: ArrayRecord | None) -> RecordDict:
    content = RecordDict({RECORD: ConfigRecord(said)})
    if arrays is not None and said["role"] == "client":
        content[ARRAYS] = arrays
    return content


def _said(said: dict[str, Any]) -> bytes | PartyError:
    if "answer" in said:
        return to_bytes(said["answer"])
    return PartyError(str(said.get("party", "client")), str(said.get("reason", "no reason given")))
