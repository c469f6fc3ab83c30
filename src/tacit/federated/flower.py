"""Aggregation over Flower: a mod for any ClientApp, and a carrier over a ServerApp's grid.

A user's own app joins with two lines::

    from tacit.federated.flower import client_mod

    app = ClientApp(mods=[client_mod(spec)])

Its train function is called as before, with the global arrays; what it returns never leaves the
node except through the aggregator of the spec. Nothing else is answered. On the server,
`PrivateStrategy` stands in front of a strategy of Flower's.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.errors import ConfigError, InputError, PartyError
from tacit.federated.journal import Silo, open_journal
from tacit.federated.node import (
    HELLO,
    HELP,
    RECORD,
    App,
    AskedStep,
    Visit,
    check_spec,
    flat_arrays,
    greet,
    help_round,
    is_helper,
    named_arrays,
    read_asked,
)
from tacit.federated.spec import FederatedSpec
from tacit.federated.strategy import FlowerCarrier, PrivateStrategy

try:
    from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
except ImportError as error:
    raise ConfigError(f"Flower is not installed: pip install 'tacit-ml[fl]' ({error})") from error

__all__ = [
    "App",
    "FlowerCarrier",
    "PrivateStrategy",
    "Silo",
    "check_spec",
    "client_mod",
    "flat_arrays",
    "named_arrays",
]

Mod = Callable[[Message, Context, App], Message]
_LOG = logging.getLogger(__name__)
_REFUSED = 6  # Flower's code for a mod that refuses


def client_mod(
    spec: FederatedSpec,
    *,
    signing: Ed25519PrivateKey | None = None,
    shuffling: X25519PrivateKey | None = None,
    authority: X25519PrivateKey | None = None,
    secret: bytes = b"",
    journal: Path | None = None,
    silo: Silo | None = None,
) -> Mod:
    """Make a Flower mod that lets an app's update go only as the spec says.

    Args:
        spec: what this client holds to; a server with other config is refused.
        signing: the key that the others know this client by, where ``federated.keys`` names them;
            one made for the run, if not given.
        shuffling: the private key of the node that shuffles, where ``federated.shuffler`` pins its
            public half; one made for the run, if not given.
        authority: the private key of the node that is the key authority, in the same way.
        secret: what `provision` made for this client, where the spec needs it.
        journal: a folder of this node's where it writes down what it has answered; all processes of
            the node must see it, and rounds are counted for as long as it lasts. One among the
            temporary files, if not given.
        silo: the rows that are trained on under a ledger of their own, for privacy "record", and
            for nothing else; the app's own training is then not called.

    Guarantee: the aggregator's and the mechanism's. Messages that are not of an aggregation, other
    types ("evaluate", "query") and further actions included, are refused and logged and reach no
    app: what an app says to them would be in no claim.
    Cost: the aggregator's; the state of a round, secrets and update, lies in the node's context
    while the round lasts.
    """
    check_spec(spec)
    fed = spec.federated
    if fed.needs_secrets and not secret and authority is None:
        raise ConfigError(
            f"aggregator {fed.aggregator!r}{', verified,' if fed.verified else ''} wants a "
            "secret for each client, got none: `provision` makes them"
        )
    helping = shuffling if fed.aggregator == "shuffled" else authority
    if (spec.privacy.kind == "record") != (silo is not None):
        raise ConfigError(
            "privacy 'record' and a silo go together: noise for records belongs into the training, "
            "which a mod cannot do for an app; "
            f"got {spec.privacy.kind!r} {'without' if silo is None else 'with'} a silo"
        )

    def mod(message: Message, context: Context, app: App) -> Message:
        try:
            asked = read_asked(message)
            if asked.role == HELLO:
                return _reply(message, greet(spec, context, helping))
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

    def answer(asked: AskedStep, message: Message, context: Context, app: App) -> bytes:
        if (asked.role == HELP) != is_helper(spec, context):
            raise PartyError("server", f"it asked a node for the role {asked.role!r} of another")
        if asked.role == HELP:
            return help_round(spec, asked, context, journal, helping)
        book = open_journal(journal, run=context.run_id, node=context.node_id)
        visit = Visit(spec, signing, context, book, silo, secret=secret)
        return visit.answer(asked, message, app)

    return mod


def _reply(message: Message, said: dict[str, Any]) -> Message:
    return Message(content=RecordDict({RECORD: ConfigRecord(said)}), reply_to=message)
