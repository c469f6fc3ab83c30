"""A client's side on Flower: what a message of the server may ask of a node, and the answer.

Only what is on the list here is answered: a train message with a record of ours, in one of three
roles. All else, whatever its type, is refused before an app sees it.
"""

import hashlib
import logging
import struct
import traceback
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from tacit.crypto import KeyPair
from tacit.errors import ConfigError, InputError, PartyError
from tacit.federated.aggregators import find_aggregator
from tacit.federated.config import Shaper, Shaping, round_config, shape_update
from tacit.federated.contract import Floats, Seat, Update, kind_of
from tacit.federated.journal import Journal, Silo, journal_of
from tacit.federated.shuffled import COMPLAINED
from tacit.federated.spec import HELPERS, FederatedSpec
from tacit.ring import Prg

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error


RECORD, ARRAYS, STATE, TRAIN = "tacit", "arrays", "tacit-state", "train"
HELLO, CLIENT, HELP = "hello", "client", "help"

_LEGACY = "recorddict_to_fitins"
"""Where Flower's adapter of old clients fails: it looks for records that are no longer sent."""
_NO_LEGACY = (
    "its app is a Client or NumPyClient of Flower's old interface, which gets other messages: "
    "write its fit as a function under @app.train() of ClientApp(mods=[client_mod(spec)])"
)

App = Callable[[Message, Context], Message]
_LOG = logging.getLogger(__name__)
Flat = NDArray[np.float32]


@dataclass(frozen=True)
class AskedStep:
    """What a message of ours asks for; every field has its type, whatever the server sent."""

    role: str
    index: int
    payload: bytes
    helper: bytes
    bound: float


def read_asked(message: Message) -> AskedStep:
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
            "on the server put PrivateStrategy in front of the strategy, or use FlowerCarrier and "
            "run_rounds",
        )
    said = message.content.config_records[RECORD]
    if said.get("role") not in (HELLO, CLIENT, HELP):
        raise PartyError("server", "its record has none of the roles that this node answers")
    index, bound = said.get("index", 0), said.get("bound", 0.0)
    if not isinstance(index, int) or not isinstance(bound, float):
        raise PartyError("server", "wanted a whole number for the index, and a number for the clip")
    return AskedStep(
        role=str(said["role"]),
        index=index,
        payload=to_bytes(said.get("payload", b"")),
        helper=to_bytes(said.get("helper", b"")),
        bound=bound,
    )


@final
class Visit:
    """One message of the server at a client: load the state, answer, save it.

    Flower may run several at once, each with a copy of the state. A step is entered in the journal
    before it is worked out, refusals included, and its state is saved only then: every step of a
    round is answered once, and all answers of a round go back to the same secrets.
    """

    def __init__(
        self,
        spec: FederatedSpec,
        signing: Ed25519PrivateKey | None,
        context: Context,
        journal: Journal,
        silo: Silo | None = None,
        secret: bytes = b"",
    ) -> None:
        self._spec, self._signing, self._silo = spec, signing, silo
        self._context, self._journal = context, journal
        self._secret = secret
        self._records = context.state.config_records

    def answer(self, asked: AskedStep, message: Message, app: App) -> bytes:
        """Do the step that is asked for."""
        kind = bytes([kind_of(asked.payload, sender="server")])
        if ARRAYS in message.content.array_records:
            state = self._begin()
            self._journal.enter(to_int(state["rounds"]), kind)
            state.update(self._train(asked, message, app))
        else:
            state = ConfigRecord(dict(self._records.get(STATE) or {}))
            if "update" not in state or state["run"] != str(self._context.run_id):
                raise PartyError("server", "it asked for a step of a round that has not begun")
            self._journal.enter(to_int(state["rounds"]), kind)
        values = np.frombuffer(to_bytes(state["update"]), "<f4").copy()
        weight = to_int(state["weight"])
        small = np.frombuffer(to_bytes(state["small"]), np.bool_) if state["small"] else None
        config = round_config(self._spec, to_int(state["dimension"]))
        config = replace(config, model=to_bytes(state["model"]))
        make = find_aggregator(self._spec.federated.aggregator).make_client
        side = make(config, self._seat(asked, state), Prg.from_os())
        answer = side.answer(asked.payload, lambda: Update(values, weight, small))
        if kind_of(answer, sender="this client") == COMPLAINED:
            self._journal.end()
        state["round"] = side.save()
        if not state["invitation"]:
            state["invitation"] = asked.payload
        self._records[STATE] = state
        return answer

    def _seat(self, asked: AskedStep, state: ConfigRecord) -> Seat:
        own = Ed25519PrivateKey.from_private_bytes(to_bytes(state["signing"]))
        before = to_bytes(state["invitation"]), to_bytes(state["round"])
        return Seat(
            index=to_int(state["index"]),  # that of the invitation, whatever is said later
            signing=self._signing or own,
            helper=self._spec.federated.helper or asked.helper,
            saved=before if before[1] else None,
            secret=self._secret,
        )

    def _begin(self) -> ConfigRecord:
        """Return what outlives a round: the key that this node signs with, and the count.

        Raises:
            PartyError: the server asks for more rounds than the privacy was planned for.
        """
        state = self._records.get(STATE) or ConfigRecord()
        number = self._journal.begin(
            most=self._spec.federated.rounds, already=to_int(state.get("rounds", 0))
        )
        signing = state.get("signing") or Ed25519PrivateKey.generate().private_bytes_raw()
        return ConfigRecord(
            {"signing": to_bytes(signing), "rounds": number, "run": str(self._context.run_id)}
        )

    def _train(self, asked: AskedStep, message: Message, app: App) -> dict[str, bytes | int]:
        """Let the app train, and keep what it changed."""
        try:
            before = flat_arrays(message.content.array_records[ARRAYS])
        except (ValueError, TypeError, EOFError) as error:
            raise PartyError("server", "its arrays are not numbers that can be read") from error
        model = digest_of(message.content, without=RECORD, bound=asked.bound)
        message = copy(message)
        # What is in no digest reaches no app.
        message.content = RecordDict(
            {name: one for name, one in message.content.items() if name != RECORD}
        )
        if self._silo is not None:
            # No app's training is taken for a private one: the silo's own is.
            raw, weight = _train_silo(self._silo, before, self._spec), 1
        else:
            raw, weight = self._train_app(message, app, before)
        shaping = self._shaping(asked, message, before)
        change = shape_update(raw, shaping)
        return {
            "update": change.astype("<f4").tobytes(),
            "index": asked.index,
            "dimension": before.size,
            "model": model,
            "small": b"" if shaping.small is None else shaping.small.tobytes(),
            "weight": weight,
            "invitation": b"",
            "round": b"",
        }

    def _train_app(self, message: Message, app: App, before: Flat) -> tuple[Floats, int]:
        """Let the app train; return what it changed, and what that weighs in the sum."""
        after, examples = _call(app, message, self._context)
        if after.shape != before.shape:
            raise InputError(f"the app returned {after.size} numbers, got {before.size} to train")
        # Under a mechanism all weigh the same: the number of examples is private too.
        weight = examples if self._spec.privacy.kind == "none" else 1
        if weight < 1:
            raise InputError(f"the app returned num-examples {weight}, wanted at least 1")
        return after - before, weight

    def _shaping(self, asked: AskedStep, message: Message, before: Flat) -> Shaping:
        """Work out what all know: the server says the clip of the round, the rest is the model's.

        A clip that the server chooses badly costs accuracy; the noise is planned for any.
        """
        mechanism = round_config(self._spec, before.size).mechanism
        if mechanism.follows is None:
            given = message.content.array_records[ARRAYS]
            shapes = [array.numpy().shape for array in given.values()]
            return Shaper(mechanism, list(given), shapes).shaping(before)
        if not 0 < asked.bound < float("inf"):
            raise PartyError("server", f"wanted a clip above 0 for the round, got {asked.bound!r}")
        return Shaping(bound=asked.bound)


def _train_silo(silo: Silo, before: Flat, spec: FederatedSpec) -> Floats:
    """Let a silo train; return what it changed.

    Raises:
        PartyError: it refused, or it failed; of a failure the words stay here, as with an app.
    """
    try:
        return silo.train(before, spec).values
    except PartyError:
        raise
    except Exception as error:  # Flower sends what it raises, and it may quote rows
        where = "".join(traceback.format_tb(error.__traceback__))
        _LOG.error("the training failed with %s:\n%s", type(error).__name__, where)
    raise PartyError("client", "its training failed; the log of its node says where")


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
        names = {frame.name for frame in traceback.extract_tb(error.__traceback__)}
    if _LEGACY in names:
        raise PartyError("client", _NO_LEGACY)
    raise PartyError("client", "its app failed; the log of its node says where")


def greet(
    spec: FederatedSpec, context: Context, helping: X25519PrivateKey | None
) -> dict[str, Any]:
    """Say whether this node is the helper, and under which key."""
    if not is_helper(spec, context):
        return {"is-helper": False}
    return {"is-helper": True, "helper": _helper_keys(spec, context, helping).public}


def help_round(
    spec: FederatedSpec,
    asked: AskedStep,
    context: Context,
    folder: Path | None,
    helping: X25519PrivateKey | None,
) -> bytes:
    """Do the helper's part; a session is entered in its key's journal before it is answered."""
    make = find_aggregator(spec.federated.aggregator).make_helper
    if make is None:
        raise PartyError("server", f"aggregator {spec.federated.aggregator!r} has no helper")
    pair = _helper_keys(spec, context, helping)
    enter = partial(journal_of(folder, pair.public).enter, 0)
    answer = make(round_config(spec, 1), pair, Prg.from_os(), enter)
    return answer(asked.payload)


def is_helper(spec: FederatedSpec, context: Context) -> bool:
    """Return whether this node shuffles or is the authority; such a node is never a client too."""
    name = HELPERS.get(spec.federated.aggregator)
    # A simulation numbers its nodes; the one after the last client helps.
    is_extra = (
        name is not None and context.node_config.get("partition-id") == spec.federated.clients
    )
    return context.node_config.get("role") in HELPERS.values() or is_extra


def check_spec(spec: FederatedSpec) -> None:
    """Refuse what nodes cannot do: they know the arrays of a model, not its layers.

    Raises:
        ConfigError: says what can be done instead.
    """
    adaptive = spec.privacy.adaptive
    if spec.federated.aggregator == "bounded":
        raise ConfigError(
            "aggregator 'bounded' has two servers and a dealer: engine 'local' has it, and "
            "`norm_check` between real parties"
        )
    if spec.privacy.mechanism == "objective":
        raise ConfigError("objective perturbation is a training of its own: engine 'local' has it")
    if adaptive.by == "layers" or adaptive.relevance == "clients":
        raise ConfigError(
            "noise by layers, and relevance asked of clients, run on the engine 'local'; on "
            'Flower use by = "attributes" with relevance = "model"'
        )


def _helper_keys(
    spec: FederatedSpec, context: Context, helping: X25519PrivateKey | None
) -> KeyPair:
    """Return the key that was given, or one made for the run.

    Raises:
        PartyError: it is not the one that the job pins.
    """
    records = context.state.config_records
    if helping is None and STATE not in records:
        made = X25519PrivateKey.generate().private_bytes_raw()
        records[STATE] = ConfigRecord({"private": made})
    private = helping or X25519PrivateKey.from_private_bytes(to_bytes(records[STATE]["private"]))
    pair = KeyPair(public=private.public_key().public_bytes_raw(), private=private)
    if spec.federated.helper not in (None, pair.public):
        raise PartyError(
            HELPERS[spec.federated.aggregator], "its key is not the one that the job pins"
        )
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


def flat_arrays(record: ArrayRecord) -> Flat:
    """Join the arrays of a record into one vector."""
    return np.concatenate([array.numpy().reshape(-1) for array in record.values()]).astype(
        np.float32
    )


def digest_of(content: RecordDict, *, without: str, bound: float) -> bytes:
    """Hash all that an app is given in a round: every record but one, and the clip.

    Guarantee: different contents, or records or entries of other names, shapes or order, have
    different digests, if SHA-256 is collision-resistant.
    Cost: one pass over the arrays.
    """
    found = hashlib.sha256(b"tacit model")

    def add(*parts: object) -> None:
        for part in parts:  # each behind its length: no two lists of parts run into one another
            body = part if isinstance(part, bytes) else repr(part).encode()
            found.update(struct.pack("<Q", len(body)) + body)

    add(bound)
    for name, record in content.items():  # in the order in which an app finds them
        if name == without:
            continue
        add(name, type(record).__name__, len(record))
        if isinstance(record, ArrayRecord):
            for key, one in record.items():
                add(key, one.dtype, tuple(one.shape), one.stype, one.data)
        else:
            add(*record.items())
    return found.digest()


def named_arrays(model: torch.nn.Module) -> Callable[[Flat], ArrayRecord]:
    """Return what cuts a flat vector into the arrays of a torch model's parameters."""
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return _cutter({name: (shape, np.dtype(np.float32)) for name, shape in shapes.items()})


def arrays_like(record: ArrayRecord) -> Callable[[Flat], ArrayRecord]:
    """Return what cuts a flat vector into arrays like those of a record.

    Raises:
        ConfigError: an array is not of floating-point numbers.
    """
    forms = {}
    for name, array in record.items():
        found = array.numpy()
        if not np.issubdtype(found.dtype, np.floating):
            raise ConfigError(f"{name}: wanted floating-point numbers to add up, got {found.dtype}")
        forms[name] = (found.shape, found.dtype)
    return _cutter(forms)


def _cutter(
    forms: dict[str, tuple[tuple[int, ...], np.dtype[Any]]],
) -> Callable[[Flat], ArrayRecord]:
    def cut(flat: Flat) -> ArrayRecord:
        record, at = ArrayRecord(), 0
        for name, (shape, dtype) in forms.items():
            size = int(np.prod(shape, dtype=np.int64))
            record[name] = Array(flat[at : at + size].reshape(shape).astype(dtype))
            at += size
        return record

    return cut
