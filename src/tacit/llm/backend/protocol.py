"""How a chat is kept private: what owner, user and dealer must all have chosen alike."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import get_args, get_origin

import torch

from tacit.errors import ConfigError, FrameError, check_word
from tacit.llm.backend.chat_file import PrecisionName, ProtocolName, Role
from tacit.llm.claims import Reveal, permuted_claims, sealed_claims
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.checkpoint import DEALER_BYTES, OWNER_BYTES, USER_BYTES, Checkpoint
from tacit.llm.permuted import Precision
from tacit.llm.sampling import Sampling
from tacit.llm.sealed import check_wish
from tacit.party import Fact, Session
from tacit.result import Claim
from tacit.ring import check_device

_PRECISIONS: dict[PrecisionName, Precision | None] = {
    "fitted": None,  # to the owner's model, when it is read
    "wide": Precision(),
}


_WEIGHT_BYTES: dict[Role, int] = {
    "owner": OWNER_BYTES,
    "user": USER_BYTES,
    "dealer": DEALER_BYTES,
}


@dataclass(frozen=True, kw_only=True)
class ChatProtocol:
    """The protocol of a chat, and its settings.

    Under ``permuted`` the user sees values of the model in secret orders. Under ``sealed`` nobody
    sees anything but the user, and it the token that was chosen, or the scores.
    ``counts`` shows the user of a permuted chat which scores belong to tokens that came before,
    as a repetition penalty needs it; who cheats learns the tokens of all scores from it.
    ``precision`` is the owner's own choice, instead of that of the job file; the others are told.
    ``device`` is where this party computes, its own choice too.
    """

    name: ProtocolName = "permuted"
    reveal: Reveal = "token"
    counts: bool = False
    precision: PrecisionName | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_word("--protocol", self.name, ProtocolName)
        check_word("--reveal", self.reveal, Reveal)
        if self.precision is not None:
            check_word("--precision", self.precision, PrecisionName)
        check_device(self.device, "--device")
        if self.precision is not None and self.name != "permuted":
            raise ConfigError("--precision belongs to --protocol permuted")
        if self.reveal != "token" and self.name != "sealed":
            raise ConfigError("--reveal says what a sealed chat shows: give --protocol sealed too")
        if self.counts and self.name != "permuted":
            raise ConfigError("--counts belongs to --protocol permuted; the others have none")

    @property
    def is_sealed(self) -> bool:
        """Say whether nothing is shown but answers."""
        return self.name == "sealed"

    def words(self, architecture: Architecture) -> list[str]:
        """Say what an owner promises and risks who serves a model like this."""
        return [
            f"{claim.subject}: {claim.guarantee}; {'; '.join(claim.assumptions)}"
            for claim in self.claims(architecture)
        ]

    def claims(self, architecture: Architecture) -> tuple[Claim, ...]:
        """Return what is promised about a model like this."""
        return sealed_claims(self.reveal) if self.is_sealed else permuted_claims(architecture)

    def check(self, sampling: Sampling) -> None:
        """Refuse a way of choosing tokens that this protocol does not offer."""
        if self.is_sealed and self.reveal != "scores":
            check_wish(sampling, self.reveal)
        if not self.is_sealed and not self.counts and sampling.needs_places:
            raise ConfigError(
                "a repetition penalty needs to know which scores belong to tokens that came "
                "before: leave it out, or have all parties start with --counts"
            )

    def check_memory(self, checkpoint: Checkpoint, free_bytes: int, *roles: Role) -> None:
        """Refuse a model that these roles together have no memory for, before it is read.

        Raises:
            DataError: it does not fit.
        """
        needed = sum(_WEIGHT_BYTES[role] for role in roles)
        checkpoint.check_memory(free_bytes, bytes_per_weight=needed, parties=len(roles))

    def bits(self, named: Iterable[PrecisionName]) -> Precision | None:
        """Return the precision that the owner has chosen, None for what fits its model.

        Args:
            named: what the files of its chats say.

        Raises:
            ConfigError: files say different things, and there is one encoded model for all.
        """
        if self.precision is not None:
            return _PRECISIONS[self.precision]
        found = set(named)
        if len(found) > 1:
            raise ConfigError(
                f"chat.precision must be the same in all files that one owner serves, got "
                f"{', '.join(sorted(found))}; or choose one with --precision"
            )
        return _PRECISIONS[found.pop()]

    def agree(self, session: Session) -> None:
        """Make sure that all three parties have chosen alike, or stop."""
        text = f"tacit chat protocol {self.name} {self.reveal} {self.counts}"
        digest = hashlib.sha256(text.encode()).digest()
        session.agree("--protocol, --reveal or --counts", digest)

    def arguments(self, role: Role) -> list[str]:
        """Return the options that choose this on a party's command line."""
        counts = ["--counts"] if self.counts else []
        fine = ["--precision", self.precision] if self.precision and role == "owner" else []
        where = [] if self.device == "cpu" else ["--device", self.device]
        own = [*counts, *where, *fine]
        return ["--protocol", self.name, "--reveal", self.reveal, *own]


def choose_protocol(
    given: ProtocolName | None, named: Iterable[ProtocolName | None], role: Role | None
) -> ProtocolName:
    """Return the protocol of a chat: that of the command, or the one that its files name.

    If nothing is said, it is sealed wherever the owner is someone else, and permuted on one
    machine, where there is no role.

    Raises:
        ConfigError: they contradict each other.
    """
    found = {name for name in named if name is not None}
    if given is not None:
        found.add(given)
    if len(found) > 1:
        raise ConfigError(
            f"the protocol must be the same in all job files and on the command line, got "
            f"{', '.join(sorted(found))}"
        )
    if found:
        return found.pop()
    return "permuted" if role is None else "sealed"


_LARGEST_BYTES = 4096
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
    if not 0 < size <= _LARGEST_BYTES:
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
        value = raw[name]
        if not (value in get_args(kind) if get_origin(kind) is not None else type(value) is kind):
            raise ConfigError(f"{name} cannot be {raw[name]!r}")
    return Architecture(**raw)
