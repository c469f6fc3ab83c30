"""Who sits where, and the commands to the owner.

Tags begin with a word and the number of the conversation: `run0/next`, `ctl0/batch`.
"""

from dataclasses import dataclass

from tacit.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Seats:
    """Which party of the session owns the model, which asks, and which deals."""

    owner: str = "owner"
    user: str = "user"
    dealer: str = "dealer"

    def __post_init__(self) -> None:
        names = (self.owner, self.user, self.dealer)
        if len(set(names)) != len(names):
            raise ConfigError(
                f"owner, user and dealer must be three parties, got {', '.join(names)}: a dealer "
                "who takes part could read what it masks"
            )


RUN, STEP, NAME, CLOSE = range(4)
"""Commands to the owner: run a prompt; step on from the chosen place; name its token; end."""

COMMAND_BYTES = 32
