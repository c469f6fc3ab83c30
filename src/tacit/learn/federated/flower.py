"""Aggregation over Flower: a mod for any ClientApp, and a carrier over a ServerApp's grid.

A user's own app joins with two lines::

    from tacit.learn.federated.flower import guard

    app = ClientApp(mods=[guard(policy)])

Its train function is called as before, with the global arrays; what it returns never leaves the
node except through the aggregator of the policy.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from torch import Tensor

from tacit.crypto import KeyPair, make_key_pair
from tacit.errors import ConfigError, InputError, PartyError
from tacit.learn.federated.aggregators import Seat, find_aggregator
from tacit.learn.federated.arrays import Flat, flat_arrays, named_arrays
from tacit.learn.federated.contract import Aggregate, Meter, Update, run_round
from tacit.learn.federated.diary import Diary, open_diary
from tacit.learn.federated.packing import kind_of
from tacit.learn.federated.policy import Policy
from tacit.learn.federated.shaping import Outlook, Shaper, shape_update
from tacit.learn.federated.shuffled import SHUFFLER, session_of
from tacit.learn.federated.shuffled.sides import make_shuffler
from tacit.learn.federated.terms import Terms
from tacit.ring import Prg

try:
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.serverapp import Grid
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

__all__ = ["App", "FlowerCarrier", "check_policy", "flat_arrays", "guard", "named_arrays"]

RECORD, ARRAYS, STATE = "tacit", "arrays", "tacit-state"
_POLL_S = 0.05
_FIRST_WAIT_S = 0.1

App = Callable[[Message, Context], Message]


def guard(
    policy: Policy,
    *,
    signing: Ed25519PrivateKey | None = None,
    shuffler: bytes | None = None,
    diary: Path | None = None,
) -> Callable[[Message, Context, App], Message]:
    """Make a Flower mod that lets an app's update go only as the policy says.

    Args:
        policy: what this client holds to; a server with other terms is refused.
        signing: the key that the others know this client by, where ``policy.keys`` names them; one
            made for the run, if not given.
        shuffler: the shuffler's public key, for the aggregator "shuffled". Without it the key is
            taken from the server, which could then read the reports in their first envelope: the
            guarantee is against a curious server only.
        diary: a folder of this node's where it writes down what it has answered; all processes of
            the node must see it, and rounds are counted for as long as it lasts. One among the
            temporary files, if not given.

    Guarantee: the aggregator's and the promise's; messages that are not of an aggregation pass to
    the app untouched, so the app itself must not send the model elsewhere.
    Cost: the aggregator's; the state of a round, secrets and update, lies in the node's context
    while the round lasts.
    """
    check_policy(policy)

    def mod(message: Message, context: Context, app: App) -> Message:
        if RECORD not in message.content.config_records:
            return app(message, context)
        asked = message.content.config_records[RECORD]
        if asked["role"] == "hello":
            return _reply(message, _hello(policy, context))
        try:
            is_shuffle = asked["role"] == "shuffle"
            # A shuffler keeps its key from run to run, and so what it has shuffled.
            run = 0 if is_shuffle else context.run_id
            book = open_diary(diary, run=run, node=context.node_id)
            if is_shuffle:
                answer = _shuffle(policy, asked, context, book)
            else:
                answer = _Visit(policy, signing, shuffler, context, book).answer(message, app)
        except PartyError as error:
            return _reply(message, {"party": error.party, "reason": error.reason})
        except InputError as error:
            name = f"client {_int(asked['index'])}"
            return _reply(message, {"party": name, "reason": str(error)})
        return _reply(message, {"answer": answer})

    return mod


@final
class _Visit:
    """One message of the server at a client: load the state, answer, save it.

    Flower may run several at once, each with a copy of the state. Whatever they work out, an answer
    leaves only after it is in the diary, and its state is saved only then: every step of a round is
    answered once, and all answers of a round go back to the same secrets.
    """

    def __init__(
        self,
        policy: Policy,
        signing: Ed25519PrivateKey | None,
        shuffler: bytes | None,
        context: Context,
        diary: Diary,
    ) -> None:
        self._policy, self._signing, self._shuffler = policy, signing, shuffler
        self._diary = diary
        self._records = context.state.config_records
        self._context = context

    def answer(self, message: Message, app: App) -> bytes:
        asked = message.content.config_records[RECORD]
        if ARRAYS in message.content.array_records:
            kept = self._begin()
            state = ConfigRecord({**kept, **self._train(message, app)})
        else:
            state = ConfigRecord(dict(self._records.get(STATE) or {}))
        if "update" not in state or state["run"] != str(self._context.run_id):
            raise PartyError("server", "it asked for a step of a round that has not begun")
        values = np.frombuffer(_bytes(state["update"]), "<f4").copy()
        seat = Seat(
            index=_int(asked["index"]),
            signing=self._signing or Ed25519PrivateKey.from_private_bytes(_bytes(state["signing"])),
            shuffler=self._shuffler or _bytes(asked["shuffler"]),
            saved=(_bytes(state["invitation"]), _bytes(state["round"])) if state["round"] else None,
        )
        terms = self._policy.terms(_int(state["dimension"]))
        side = find_aggregator(self._policy.aggregator).make_client(terms, seat, Prg.from_os())
        weight = _int(state["weight"])
        small = np.frombuffer(_bytes(state["small"]), np.bool_) if state["small"] else None
        payload = _bytes(asked["payload"])
        answer = side.answer(payload, lambda: Update(values, weight, small))
        self._diary.enter(_int(state["rounds"]), bytes([kind_of(payload, sender="server")]))
        state["round"] = side.save()
        if not state["invitation"]:
            state["invitation"] = payload
        self._records[STATE] = state
        return answer

    def _begin(self) -> dict[str, bytes | int | str]:
        """Return what outlives a round: the key that this node signs with, and the count.

        Raises:
            PartyError: the server asks for more rounds than the privacy was planned for.
        """
        state = self._records.get(STATE) or ConfigRecord()
        number = self._diary.begin(most=self._policy.rounds, already=_int(state.get("rounds", 0)))
        signing = state.get("signing") or Ed25519PrivateKey.generate().private_bytes_raw()
        return {"signing": _bytes(signing), "rounds": number, "run": str(self._context.run_id)}

    def _train(self, message: Message, app: App) -> dict[str, bytes | int]:
        """Let the app train, and keep what it changed."""
        before = flat_arrays(message.content.array_records[ARRAYS])
        reply = app(message, self._context)
        after = flat_arrays(next(iter(reply.content.array_records.values())))
        if after.shape != before.shape:
            raise InputError(f"the app returned {after.size} numbers, got {before.size} to train")
        outlook = self._outlook(message, before)
        change = shape_update(after - before, outlook)
        examples = [
            record["num-examples"]
            for record in reply.content.metric_records.values()
            if "num-examples" in record
        ]
        return {
            "update": change.astype("<f4").tobytes(),
            "dimension": before.size,
            "small": b"" if outlook.small is None else outlook.small.tobytes(),
            "weight": _int(examples[0]) if examples else 1,
            "invitation": b"",
            "round": b"",
        }

    def _outlook(self, message: Message, before: Flat) -> Outlook:
        """Work out what all know: the server says the clip of the round, the rest is the model's.

        A clip that the server chooses badly costs accuracy; the noise is planned for any.
        """
        promise = self._policy.terms(before.size).promise
        if promise.quantile is None:
            given = message.content.array_records[ARRAYS]
            shapes = [array.numpy().shape for array in given.values()]
            return Shaper(promise, list(given), shapes).outlook(before)
        bound = message.content.config_records[RECORD]["bound"]
        if not isinstance(bound, float) or not 0 < bound < float("inf"):
            raise PartyError("server", f"wanted a clip above 0 for the round, got {bound!r}")
        return Outlook(bound=bound)


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
            PartyError: not enough nodes came.
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
        self._shuffler_key = _bytes(roles[shufflers[0]]["shuffler"])

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
            Message(content=_content(said, arrays), dst_node_id=node, message_type="train")
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


def check_policy(policy: Policy) -> None:
    """Refuse what nodes cannot do: they know the arrays of a model, not its layers.

    Raises:
        ConfigError: says what can be done instead.
    """
    adaptive = policy.wish.adaptive
    if policy.wish.mechanism == "objective":
        raise ConfigError("objective perturbation is a training of its own: engine 'light' has it")
    if adaptive.by == "layers" or adaptive.relevance == "clients":
        raise ConfigError(
            "noise by layers, and relevance asked of clients, run on the engine 'light'; on "
            'Flower use by = "attributes" with relevance = "model"'
        )


def _content(said: dict[str, Any], arrays: ArrayRecord | None) -> RecordDict:
    content = RecordDict({RECORD: ConfigRecord(said)})
    if arrays is not None and said["role"] == "client":
        content[ARRAYS] = arrays
    return content


def _reply(message: Message, said: dict[str, Any]) -> Message:
    return Message(content=RecordDict({RECORD: ConfigRecord(said)}), reply_to=message)


def _said(said: dict[str, Any]) -> bytes | PartyError:
    if "answer" in said:
        return _bytes(said["answer"])
    return PartyError(str(said.get("party", "client")), str(said.get("reason", "no reason given")))


def _hello(policy: Policy, context: Context) -> dict[str, Any]:
    # A simulation numbers its nodes; the one after the last client shuffles.
    is_extra = context.node_config.get("partition-id") == policy.clients
    if context.node_config.get("role") != "shuffler" and not is_extra:
        return {"is-shuffler": False}
    return {"is-shuffler": True, "shuffler": _shuffler_keys(context).public}


def _shuffle(policy: Policy, asked: ConfigRecord, context: Context, diary: Diary) -> bytes:
    """Do the shuffler's part; sessions that were shuffled are remembered in the context."""
    pair = _shuffler_keys(context)
    state = context.state.config_records[STATE]
    worker = make_shuffler(policy.terms(1), pair, Prg.from_os())
    worker.remember(_bytes(state["seen"]))
    payload = _bytes(asked["payload"])
    try:
        released = worker.shuffle(payload)
    finally:
        state["seen"] = worker.seen
    diary.enter(0, session_of(payload))
    return released


def _shuffler_keys(context: Context) -> KeyPair:
    records = context.state.config_records
    if STATE not in records:
        pair = make_key_pair()
        records[STATE] = ConfigRecord({"private": pair.private.private_bytes_raw(), "seen": b""})
        return pair
    private = X25519PrivateKey.from_private_bytes(_bytes(records[STATE]["private"]))
    return KeyPair(public=private.public_key().public_bytes_raw(), private=private)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise PartyError("server", f"wanted a whole number, got {type(value).__name__}")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise PartyError("server", f"wanted bytes in a message, got {type(value).__name__}")
    return value
