"""How a chat is kept private: what owner, user and dealer must all have chosen alike."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec

from tacit.errors import ConfigError
from tacit.extras import install_hint
from tacit.llm.backend.chat_file import PrecisionName, ProtocolName, Role
from tacit.llm.backend.sampling import Sampling
from tacit.llm.floating import CLAIM, check_sampling
from tacit.llm.model.architecture import Architecture
from tacit.llm.model.checkpoint import DEALER_BYTES, OWNER_BYTES, USER_BYTES, Checkpoint
from tacit.llm.permuted import BRIEF, COMPACT, Naming, Precision, claims
from tacit.llm.sealed import Reveal, check_wish, sealed_claims
from tacit.party import Session
from tacit.result import Claim
from tacit.ring import check_device

_NOISE = 100.0
_PRECISIONS: dict[PrecisionName, Precision | None] = {
    "fitted": None,  # to the owner's model, when it is read
    "wide": Precision(),
    "compact": COMPACT,
    "brief": BRIEF,
}


_WEIGHT_BYTES: dict[Role, int] = {
    "owner": OWNER_BYTES,
    "user": USER_BYTES,
    "dealer": DEALER_BYTES,
}
_FLOATING_BYTES: dict[Role, int] = {"owner": 12, "user": 8, "dealer": 8}


@dataclass(frozen=True, kw_only=True)
class ChatProtocol:
    """The protocol of a chat, and its settings.

    Under ``permuted`` the user sees values of the model in secret orders. Under ``sealed`` nobody
    sees anything but the user, and it the token that was chosen, or the scores. Under
    ``floating`` values are covered by noise ``noise`` times as large, which is no guarantee.
    ``counts`` shows the user of a permuted chat which scores belong to tokens that came before,
    as a repetition penalty needs it; who cheats learns the tokens of all scores from it.
    ``precision`` is the owner's own choice, instead of that of the job file; the others are told.
    ``device`` is where this party computes, its own choice too. ``naming`` says how the user learns
    which token it chose; under "bfv" the owner offers it, and the user takes it.
    """

    name: ProtocolName = "permuted"
    reveal: Reveal = "token"
    noise: float | None = None
    counts: bool = False
    precision: PrecisionName | None = None
    device: str = "cpu"
    naming: Naming = "transfer"

    def __post_init__(self) -> None:
        if self.device != "cpu" and self.name == "floating":
            raise ConfigError("--device belongs to --protocol permuted or sealed")
        if self.naming != "transfer" and self.name != "permuted":
            raise ConfigError("--naming belongs to --protocol permuted; the others have none")
        check_device(self.device, "--device")
        if self.naming == "bfv" and find_spec("tenseal") is None:
            raise ConfigError(f"--naming bfv needs TenSEAL; run: {install_hint('tenseal')}")
        if self.precision is not None and self.name != "permuted":
            raise ConfigError("--precision belongs to --protocol permuted")
        if self.reveal != "token" and self.name != "sealed":
            raise ConfigError("--reveal says what a sealed chat shows: give --protocol sealed too")
        if self.noise is not None and self.name != "floating":
            raise ConfigError("--noise belongs to --protocol floating")
        if self.counts and self.name != "permuted":
            raise ConfigError("--counts belongs to --protocol permuted; the others have none")

    @property
    def is_sealed(self) -> bool:
        """Say whether nothing is shown but answers."""
        return self.name == "sealed"

    @property
    def ratio(self) -> float:
        """Return how much larger noise is than what it covers."""
        return _NOISE if self.noise is None else self.noise

    @property
    def warning(self) -> str | None:
        """Say what a user must know before it types, if there is no guarantee at all."""
        if self.name != "floating":
            return None
        return _sentence(CLAIM)

    def words(self, architecture: Architecture) -> list[str]:
        """Say what an owner promises and risks who serves a model like this."""
        return [_sentence(claim) for claim in self.claims(architecture)]

    def claims(self, architecture: Architecture) -> tuple[Claim, ...]:
        """Return what is promised about a model like this."""
        match self.name:
            case "permuted":
                return claims(architecture)
            case "sealed":
                return sealed_claims(self.reveal)
            case "floating":
                return (CLAIM,)

    def check(self, sampling: Sampling) -> None:
        """Refuse a way of choosing tokens that this protocol does not offer."""
        if self.name == "floating":
            check_sampling(sampling)
        if self.is_sealed and self.reveal != "scores":
            check_wish(sampling, self.reveal)
        if self.name == "permuted" and not self.counts and sampling.needs_places:
            raise ConfigError(
                "a repetition penalty needs to know which scores belong to tokens that came "
                "before: leave it out, or have all parties start with --counts"
            )

    def check_memory(self, checkpoint: Checkpoint, free_bytes: int, *roles: Role) -> None:
        """Refuse a model that these roles together have no memory for, before it is read.

        Raises:
            DataError: it does not fit.
        """
        each = _FLOATING_BYTES if self.name == "floating" else _WEIGHT_BYTES
        needed = sum(each[role] for role in roles)
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
        text = f"tacit chat protocol {self.name} {self.reveal} {self.ratio} {self.counts}"
        digest = hashlib.sha256(text.encode()).digest()
        session.agree("--protocol, --reveal, --noise or --counts", digest)

    def arguments(self, role: Role) -> list[str]:
        """Return the options that choose this on a party's command line."""
        noise = [] if self.noise is None else ["--noise", str(self.noise)]
        counts = ["--counts"] if self.counts else []
        fine = ["--precision", self.precision] if self.precision and role == "owner" else []
        where = [] if self.device == "cpu" else ["--device", self.device]
        named = [] if self.naming == "transfer" else ["--naming", self.naming]
        own = [*noise, *counts, *where, *named, *fine]
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


def _sentence(claim: Claim) -> str:
    return f"{claim.subject}: {claim.guarantee}; {'; '.join(claim.assumptions)}"
