"""The options of chats, as click sees them, and the types of what it then hands over."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypedDict, TypeVar

import click

if TYPE_CHECKING:
    from tacit.llm.backend.chat_file import PrecisionName, ProtocolName, Role
    from tacit.llm.sealed import Reveal

C = TypeVar("C", bound=Callable[..., object] | click.Command)
PATH = click.Path(path_type=Path)


class Choices(TypedDict):
    """What `PROTOCOL` gives."""

    name: "ProtocolName | None"
    reveal: "Reveal"
    counts: bool
    precision: "PrecisionName | None"
    device: str


class Served(Choices):
    """What a party that serves is told."""

    path: str | None
    keys: Path
    quota: int | None
    material: Path | None
    memory: float | None
    listen_fd: int | None
    status_fd: int | None


class Asked(Choices):
    """What whoever chats is told: its part, its network, and what `MANNER` gives."""

    role: "Role | None"
    job: Path | None
    keys: Path
    quota: int | None
    material: Path | None
    rtt_ms: float | None
    mbit: float | None
    prompt: str | None
    endpoint: str | None
    longest_prompt: int | None
    system: str | None
    limit: int
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    seed: int | None


MANNER = (
    click.option("--system", help="The system message, instead of the template's own."),
    click.option("--max-tokens", "limit", type=int, default=256, show_default=True),
    click.option("--temperature", type=float, default=0.0, show_default=True, help="0: greedy."),
    click.option("--top-k", type=int, default=0, show_default=True, help="0: all tokens."),
    click.option("--top-p", type=float, default=1.0, show_default=True),
    click.option("--repetition-penalty", type=float, default=1.0, show_default=True),
    click.option("--seed", type=int, help="Draw the same way again."),
)


class _Option(Protocol):
    """One of click's decorators, for functions and commands alike."""

    def __call__(self, command: C, /) -> C: ...


def with_options(options: Sequence[_Option]) -> _Option:
    """Return all of them as one."""

    def decorate(command: C, /) -> C:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


KEYS = click.option(
    "--keys", type=PATH, default=Path("keys"), show_default=True, help="Folder with the keys."
)


PROTOCOL = (
    click.option(
        "--protocol",
        "name",
        type=click.Choice(["permuted", "sealed"]),
        help="Whom each suits is said below. The same at all parties.  [default: that of the job "
        "file; without one sealed with --as, permuted on one machine]",
    ),
    click.option(
        "--reveal",
        type=click.Choice(["token", "sample", "scores"]),
        default="token",
        show_default=True,
        help="With --protocol sealed: what the user is shown of each answer. token: the best after "
        "noise of its own. sample: one that the dealer's noise has drawn. scores: all of them. The "
        "same at all parties.",
    ),
    click.option(
        "--counts",
        is_flag=True,
        help="With --protocol permuted: show the user which scores belong to tokens that came "
        "before, as a repetition penalty needs it. The same at all parties.",
    ),
    click.option(
        "--precision",
        type=click.Choice(["fitted", "wide"]),
        help="With --protocol permuted, for the owner to choose (the others are told). fitted: as "
        "fine as the model's values leave room for. wide: room for values up to 30,000, whatever "
        "was measured.  [default: that of the job file, or fitted]",
    ),
    click.option(
        "--device",
        default="cpu",
        show_default=True,
        help="Where this party computes: cpu, cuda or cuda:N.",
    ),
)


QUOTA = click.option(
    "--quota",
    type=click.IntRange(min=1),
    metavar="TOKENS",
    help="With --as owner: how many tokens one user's key may have read and written, ever; counted "
    "in a file beside the owner's key.  [default: no limit]",
)


MATERIAL = click.option(
    "--material",
    type=PATH,
    metavar="PATH",
    help="Hold a sealed chat without the dealer, on what `tacit deal` had dealt before. With --as "
    "user: its file. With --as owner: the folder of its keys, `dealt` beside the owner's key.",
)


NOTHING = {
    "name": None,
    "reveal": "token",
    "counts": False,
    "precision": None,
    "device": "cpu",
}
"""The options of `PROTOCOL` that were not given."""
