"""How a chat is kept private: what owner, user and dealer must all have chosen alike."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.cli.chat_job import ChatJob, PrecisionName, Role
from tacit.errors import ConfigError
from tacit.llm import Sampling
from tacit.llm.floating import CLAIM, check_sampling
from tacit.llm.private import BRIEF, COMPACT, Precision
from tacit.llm.sealed import Reveal, check_wish
from tacit.party import Session

Name = Literal["permuted", "sealed", "floating"]
_NOISE = 100.0
_PRECISIONS: dict[PrecisionName, Precision | None] = {
    "fitted": None,  # to the owner's model, when it is read
    "wide": Precision(),
    "compact": COMPACT,
    "brief": BRIEF,
}


@dataclass(frozen=True, kw_only=True)
class ChatProtocol:
    """The protocol of a chat, and its settings.

    Under ``permuted`` the user sees values of the model in secret orders. Under ``sealed`` nobody
    sees anything but the user, and it the token that was chosen, or the scores. Under
    ``floating`` values are covered by noise ``noise`` times as large, which is no guarantee.
    ``counts`` shows the user of a permuted chat which scores belong to tokens that came before,
    as a repetition penalty needs it; who cheats learns the tokens of all scores from it.
    ``precision`` is the owner's own choice, instead of that of the job file; the others are told.
    """

    name: Name = "permuted"
    reveal: Reveal = "token"
    noise: float | None = None
    counts: bool = True
    precision: PrecisionName | None = None

    def __post_init__(self) -> None:
        if self.precision is not None and self.name != "permuted":
            raise ConfigError("--precision belongs to --protocol permuted")
        if self.reveal == "scores" and self.name != "sealed":
            raise ConfigError("--reveal says what a sealed chat shows: give --protocol sealed too")
        if self.noise is not None and self.name != "floating":
            raise ConfigError("--noise belongs to --protocol floating")
        if not self.counts and self.name != "permuted":
            raise ConfigError("--no-counts belongs to --protocol permuted; the others have none")

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
        return f"{CLAIM.subject}: {CLAIM.guarantee}; {CLAIM.assumptions[1]}"

    def check(self, sampling: Sampling) -> None:
        """Refuse a way of choosing tokens that this protocol does not offer."""
        if self.name == "floating":
            check_sampling(sampling)
        if self.is_sealed and self.reveal == "token":
            check_wish(sampling)
        if not self.counts and sampling.needs_places:
            raise ConfigError(
                "a chat with --no-counts offers no repetition penalty: leave one of them out"
            )

    def bits(self, jobs: Sequence[ChatJob]) -> Precision | None:
        """Return the precision that the owner has chosen, None for what fits its model.

        Raises:
            ConfigError: job files say different things, and there is one encoded model for all.
        """
        if self.precision is not None:
            return _PRECISIONS[self.precision]
        found = {job.chat.precision for job in jobs}
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
        session.agree("--protocol, --reveal, --noise or --no-counts", digest)

    def arguments(self, role: Role) -> list[str]:
        """Return the options that choose this on a party's command line."""
        noise = [] if self.noise is None else ["--noise", str(self.noise)]
        counts = [] if self.counts else ["--no-counts"]
        fine = ["--precision", self.precision] if self.precision and role == "owner" else []
        return ["--protocol", self.name, "--reveal", self.reveal, *noise, *counts, *fine]
