"""Aggregation over Flower: a mod for any ClientApp, and a carrier over a ServerApp's grid.

A user's own app joins with two lines::

    from tacit.learn.federated.flower import guard

    app = ClientApp(mods=[guard(policy)])

Its train function is called as before, with the global arrays; what it returns never leaves the
node except through the aggregator of the policy. Nothing else is answered.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.errors import ConfigError, InputError, PartyError
from tacit.learn.federated.arrays import flat_arrays, named_arrays
from tacit.learn.federated.carrier import FlowerCarrier
from tacit.learn.federated.diary import open_diary
from tacit.learn.federated.node import (
    HELLO,
    RECORD,
    SHUFFLE,
    App,
    Asked,
    Visit,
    check_policy,
    greet,
    is_shuffler,
    read_asked,
    shuffle,
)
from tacit.learn.federated.policy import Policy

try:
    from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

__all__ = ["App", "FlowerCarrier", "check_policy", "flat_arrays", "guard", "named_arrays"]

_LOG = logging.getLogger(__name__)
_REFUSED = 6  # Flower's code for a mod that refuses


def guard(
    policy: Policy,
    *,
    signing: Ed25519PrivateKey | None = None,
    shuffling: X25519PrivateKey | None = None,
    diary: Path | None = None,
) -> Callable[[Message, Context, App], Message]:
    """Make a Flower mod that lets an app's update go only as the policy says.

    Args:
        policy: what this client holds to; a server with other terms is refused.
        signing: the key that the others know this client by, where ``policy.keys`` names them; one
            made for the run, if not given.
        shuffling: the private key of the node that shuffles, where ``policy.shuffler`` pins its
            public half; one made for the run, if not given.
        diary: a folder of this node's where it writes down what it has answered; all processes of
            the node must see it, and rounds are counted for as long as it lasts. One among the
            temporary files, if not given.

    Guarantee: the aggregator's and the promise's. Messages that are not of an aggregation, other
    types ("evaluate", "query") and further actions included, are refused and logged and reach no
    app: what an app says to them would be in no claim.
    Cost: the aggregator's; the state of a round, secrets and update, lies in the node's context
    while the round lasts.
    """
    check_policy(policy)

    def mod(message: Message, context: Context, app: App) -> Message:
        try:
            asked = read_asked(message)
            if asked.role == HELLO:
                return _reply(message, greet(policy, context, shuffling))
        except PartyError as error:
            _LOG.warning("refused a message: %s", error)
            return Message(Error(_REFUSED, str(error)), reply_to=message)
        try:
            return _reply(message, {"answer": answer(asked, message, context, app)})
        except PartyError as error:
            said = {"party": error.party, "reason": error.reason}
        except InputError as error:
            said = {"party": f"client {asked.index}", "reason": str(error)}
        _LOG.warning("refused a step of a round: %s", said["reason"])
        return _reply(message, said)

    def answer(asked: Asked, message: Message, context: Context, app: App) -> bytes:
        if (asked.role == SHUFFLE) != is_shuffler(policy, context):
            raise PartyError("server", f"it asked a node for the role {asked.role!r} of another")
        # A shuffler may keep its key from run to run, and so what it has shuffled.
        run = 0 if asked.role == SHUFFLE else context.run_id
        book = open_diary(diary, run=run, node=context.node_id)
        if asked.role == SHUFFLE:
            return shuffle(policy, asked, context, book, shuffling)
        return Visit(policy, signing, context, book).answer(asked, message, app)

    return mod


def _reply(message: Message, said: dict[str, Any]) -> Message:
    return Message(content=RecordDict({RECORD: ConfigRecord(said)}), reply_to=message)
