"""The owner tells the others what shape its model has; they check every word of it."""

import json
from dataclasses import asdict, fields
from typing import Any, get_args, get_origin

import torch

from tacit.errors import ConfigError, FrameError
from tacit.llm.model.architecture import Architecture
from tacit.party import Fact, Session

_LARGESTARCHITECTURE = 4096
_TAG = "setup/architecture"
ARCHITECTURE = Fact(
    tag="architecture bytes",
    count=1,
    what="the architecture of the model",
    why="all must compute the same",
    elements=len(fields(Architecture)),
)


def announce(session: Session, architecture: Architecture) -> None:
    """Tell every other party the shape of the model, as its owner.

    Cost: two messages to each of the others, below 1 kB.
    """
    text = json.dumps(asdict(architecture)).encode()
    session.publish(ARCHITECTURE, (len(text),))
    for peer in session.peers:
        words = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        session.send(peer, _TAG, words, phase="setup")


def hear(session: Session, owner: str) -> Architecture:
    """Receive the shape of the owner's model.

    Raises:
        FrameError: what came is not an architecture.
    """
    (size,) = session.learn(owner, ARCHITECTURE)
    if not 0 < size <= _LARGESTARCHITECTURE:
        raise FrameError(owner, f"announces an architecture of {size} bytes")
    text = bytes(session.recv(owner, _TAG, (size,), dtype=torch.uint8).tolist())
    try:
        return read_architecture(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise FrameError(owner, f"announces what is no architecture: {error}") from error


def read_architecture(raw: object) -> Architecture:
    """Build an architecture from plain values.

    Raises:
        ConfigError: a value is missing, unknown, or of the wrong type.
    """
    known = {field.name: field.type for field in fields(Architecture)}
    if not isinstance(raw, dict) or raw.keys() != known.keys():
        raise ConfigError(f"wanted the keys {', '.join(known)}")
    for name, kind in known.items():
        if not _fits(raw[name], kind):
            raise ConfigError(f"{name} cannot be {raw[name]!r}")
    return Architecture(**raw)


def _fits(value: object, kind: Any) -> bool:  # an annotation has no type
    if get_origin(kind) is not None:
        return value in get_args(kind)
    return type(value) is kind
