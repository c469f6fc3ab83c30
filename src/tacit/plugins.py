"""What is loaded by its name when it is first used. Below the command line nothing else is.

A room names here what only some of its users need: whoever imports the room does not import the
plug-in, nor what that stands on.
"""

from importlib import import_module
from types import ModuleType

PLUGINS = {
    # A game of federated training; attacks on a plain model need no rounds.
    "audit.rounds": "tacit.audit.targets.rounds",
    # The one aggregator whose servers compute on shares.
    "federated.bounded": "tacit.federated.bounded",
    # Apps for Flower, and the two lines that change in one: only they need Flower.
    "federated.apps": "tacit.federated.apps",
    "federated.flower": "tacit.federated.flower",
    # Protocols, which the core of mpc does not know: each has a PROTOCOL.
    "mpc.sealed": "tacit.mpc.protocols.sealed.protocol",
    "mpc.checked": "tacit.mpc.protocols.checked.protocol",
    "mpc.permuted3": "tacit.mpc.protocols.permuted3",
    "mpc.permuted2": "tacit.mpc.protocols.permuted2",
    "mpc.two_party": "tacit.mpc.protocols.two_party.protocol",
}


def load(name: str) -> ModuleType:
    """Import a plug-in of the table."""
    return import_module(PLUGINS[name])
