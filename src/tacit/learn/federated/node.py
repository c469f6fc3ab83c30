"""A client's side on Flower: what a message of the server may ask of a node, and the answer.

Only what is on the list here is answered: a train message with a record of ours, in one of three
roles. All else, whatever its type, is refused before an app sees it.
"""

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.crypto import KeyPair
from tacit.errors import ConfigError, InputError, PartyError
from tacit.learn.federated.aggregators import Seat, find_aggregator
from tacit.learn.federated.arrays import Flat, flat_arrays
from tacit.learn.federated.contract import Update
from tacit.learn.federated.diary import Diary
from tacit.learn.federated.packing import kind_of
from tacit.learn.federated.policy import Policy
from tacit.learn.federated.shaping import Outlook, Shaper, shape_update
from tacit.learn.federated.shuffled import COMPLAINED, session_of
from tacit.learn.federated.shuffled.sides import make_shuffler
from tacit.ring import Prg

try:
    from flwr.app import ConfigRecord, Context, Message
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

RECORD, ARRAYS, STATE, TRAIN = "tacit", "arrays", "tacit-state", "train"
HELLO, CLIENT, SHUFFLE = "hello", "client", "shuffle"

App = Callable[[Message, Context], Message]
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Asked:
    """What a message of ours asks for; every field has its type, whatever the server sent."""

    role: str
    index: int
    payload: bytes
    shuffler: bytes
    bound: float


def read_asked(message: Message) -> Asked:
    """Read what a message asks for.

    Raises:
        PartyError: it is not one that a node answers; says what is.
    """
    kind = message.metadata.message_type
    if kind != TRAIN:
        raise PartyError(
            "server",
            f"it sent a message of type {kind!r}; this node answers {TRAIN!r} alone: what an app "
            "returns to others would leave without noise or masks, and is in no claim",
        )
    if not message.has_content() or RECORD not in message.content.config_records:
        raise PartyError(
            "server",
            f"it sent no record {RECORD!r}: updates leave this node through its aggregator alone; "
            "on the server use FlowerCarrier and run_course in place of a strategy",
        )
    said = message.content.config_records[RECORD]
    if said.get("role") not in (HELLO, CLIENT, SHUFFLE):
        raise PartyError("server", "its record has none of the roles that this node answers")
    index, bound = said.get("index", 0), said.get("bound", 0.0)
    if not isinstance(index, int) or not isinstance(bound, float):
        raise PartyError("server", "wanted a whole number for the index, and a number for the clip")
    return Asked(
        role=str(said["role"]),
        index=index,
        payload=to_bytes(said.get("payload", b"")),
        shuffler=to_bytes(said.get("shuffler", b"")),
        bound=bound,
    )


@final
class Visit:
    """One message of the server at a client: load the state, answer, save it.

    Flower may run several at once, each with a copy of the state. A step is entered in the diary
    before it is worked out, refusals included, and its state is saved only then: every step of a
    round is answered once, and all answers of a round go back to the same secrets.
    """

    def __init__(
        self, policy: Policy, signing: Ed25519PrivateKey | None, context: Context, diary: Diary
    ) -> None:
        self._policy, self._signing = policy, signing
        self._context, self._diary = context, diary
        self._records = context.state.config_records

    def answer(self, asked: Asked, message: Message, app: App) -> bytes:
        """Do the step that is asked for."""
        kind = bytes([kind_of(asked.payload, sender="server")])
        if ARRAYS in message.content.array_records:
            state = self._begin()
            self._diary.enter(to_int(state["rounds"]), kind)
            state.update(self._train(asked, message, app))
        else:
            state = ConfigRecord(dict(self._records.get(STATE) or {}))
            if "update" not in state or state["run"] != str(self._context.run_id):
                raise PartyError("server", "it asked for a step of a round that has not begun")
            self._diary.enter(to_int(state["rounds"]), kind)
        values = np.frombuffer(to_bytes(state["update"]), "<f4").copy()
        weight = to_int(state["weight"])
        small = np.frombuffer(to_bytes(state["small"]), np.bool_) if state["small"] else None
        terms = self._policy.terms(to_int(state["dimension"]))
        make = find_aggregator(self._policy.aggregator).make_client
        side = make(terms, self._seat(asked, state), Prg.from_os())
        answer = side.answer(asked.payload, lambda: Update(values, weight, small))
        if kind_of(answer, sender="this client") == COMPLAINED:
            self._diary.end()
        state["round"] = side.save()
        if not state["invitation"]:
            state["invitation"] = asked.payload
        self._records[STATE] = state
        return answer

    def _seat(self, asked: Asked, state: ConfigRecord) -> Seat:
        own = Ed25519PrivateKey.from_private_bytes(to_bytes(state["signing"]))
        before = to_bytes(state["invitation"]), to_bytes(state["round"])
        return Seat(
            index=asked.index,
            signing=self._signing or own,
            shuffler=self._policy.shuffler or asked.shuffler,
            saved=before if before[1] else None,
        )

    def _begin(self) -> ConfigRecord:
        """Return what outlives a round: the key that this node signs with, and the count.

        Raises:
            PartyError: the server asks for more rounds than the privacy was planned for.
        """
        state = self._records.get(STATE) or ConfigRecord()
        number = self._diary.begin(most=self._policy.rounds, already=to_int(state.get("rounds", 0)))
        signing = state.get("signing") or Ed25519PrivateKey.generate().private_bytes_raw()
        return ConfigRecord(
            {"signing": to_bytes(signing), "rounds": number, "run": str(self._context.run_id)}
        )

    def _train(self, asked: Asked, message: Message, app: App) -> dict[str, bytes | int]:
        """Let the app train, and keep what it changed."""
        before = flat_arrays(message.content.array_records[ARRAYS])
        after, examples = _call(app, message, self._context)
        if after.shape != before.shape:
            raise InputError(f"the app returned {after.size} numbers, got {before.size} to train")
        outlook = self._outlook(asked, message, before)
        change = shape_update(after - before, outlook)
        return {
            "update": change.astype("<f4").tobytes(),
            "dimension": before.size,
            "small": b"" if outlook.small is None else outlook.small.tobytes(),
            "weight": examples,
            "invitation": b"",
            "round": b"",
        }

    def _outlook(self, asked: Asked, message: Message, before: Flat) -> Outlook:
        """Work out what all know: the server says the clip of the round, the rest is the model's.

        A clip that the server chooses badly costs accuracy; the noise is planned for any.
        """
        promise = self._policy.terms(before.size).promise
        if promise.quantile is None:
            given = message.content.array_records[ARRAYS]
            shapes = [array.numpy().shape for array in given.values()]
            return Shaper(promise, list(given), shapes).outlook(before)
        if not 0 < asked.bound < float("inf"):
            raise PartyError("server", f"wanted a clip above 0 for the round, got {asked.bound!r}")
        return Outlook(bound=asked.bound)


def _call(app: App, message: Message, context: Context) -> tuple[Flat, int]:
    """Let the app train; return its arrays and its number of examples.

    Raises:
        PartyError: it failed. Its words stay here: they may quote rows, and Flower would send them.
    """
    try:
        content = app(message, context).content
        metrics = content.metric_records.values()
        examples = [one["num-examples"] for one in metrics if "num-examples" in one]
        weight = to_int(examples[0]) if examples else 1
        return flat_arrays(next(iter(content.array_records.values()))), weight
    except Exception as error:  # an app is anyone's code, and Flower sends what it raises
        where = "".join(traceback.format_tb(error.__traceback__))
        _LOG.error("the app failed with %s:\n%s", type(error).__name__, where)
    raise PartyError("client", "its app failed; the log of its node says where")


def greet(policy: Policy, context: Context, shuffling: X25519PrivateKey | None) -> dict[str, Any]:
    """Say whether this node shuffles, and under which key."""
    if not is_shuffler(policy, context):
        return {"is-shuffler": False}
    return {"is-shuffler": True, "shuffler": _shuffler_keys(policy, context, shuffling).public}


def shuffle(
    policy: Policy,
    asked: Asked,
    context: Context,
    diary: Diary,
    shuffling: X25519PrivateKey | None,
) -> bytes:
    """Do the shuffler's part; a session is entered in the diary before it is shuffled."""
    pair = _shuffler_keys(policy, context, shuffling)
    diary.enter(0, session_of(asked.payload))
    return make_shuffler(policy.terms(1), pair, Prg.from_os()).shuffle(asked.payload)


def is_shuffler(policy: Policy, context: Context) -> bool:
    """Return whether this node shuffles; a node that shuffles is no client, and never both."""
    # A simulation numbers its nodes; the one after the last client shuffles.
    is_extra = context.node_config.get("partition-id") == policy.clients
    return context.node_config.get("role") == "shuffler" or is_extra


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


def _shuffler_keys(policy: Policy, context: Context, shuffling: X25519PrivateKey | None) -> KeyPair:
    """Return the key that was given, or one made for the run.

    Raises:
        PartyError: it is not the one that the job pins.
    """
    records = context.state.config_records
    if shuffling is None and STATE not in records:
        made = X25519PrivateKey.generate().private_bytes_raw()
        records[STATE] = ConfigRecord({"private": made})
    private = shuffling or X25519PrivateKey.from_private_bytes(to_bytes(records[STATE]["private"]))
    pair = KeyPair(public=private.public_key().public_bytes_raw(), private=private)
    if policy.shuffler not in (None, pair.public):
        raise PartyError("shuffler", "its key is not the one that the job pins")
    return pair


def to_int(value: object) -> int:
    """Read a whole number of a message or a state."""
    if not isinstance(value, int):
        raise PartyError("server", f"wanted a whole number, got {type(value).__name__}")
    return value


def to_bytes(value: object) -> bytes:
    """Read bytes of a message or a state."""
    if not isinstance(value, bytes):
        raise PartyError("server", f"wanted bytes in a message, got {type(value).__name__}")
    return value
