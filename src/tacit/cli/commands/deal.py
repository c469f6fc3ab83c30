"""The command ``deal``: material for a sealed chat that is held later, without its dealer."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.commands.chat import Stages
from tacit.cli.commands.chat_options import KEYS, PATH
from tacit.cli.screen import say

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge
    from tacit.llm.sealed import Reveal


@click.command(
    epilog="\b\nExamples:\n  tacit deal chat.toml --prompt 64 --tokens 128 --out monday.material\n"
    "  tacit chat --as user --job chat.toml --material monday.material"
)
@click.argument("job", type=PATH)
@click.option(
    "--prompt",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="M",
    help="Room for a first prompt of so many tokens, read in chunks of 64. A longer one goes on "
    "token by token.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="N",
    help="So many tokens behind it, whether they are said or answered.",
)
@click.option("--out", type=PATH, required=True, metavar="FILE", help="The file to write.")
@KEYS
@click.option(
    "--reveal",
    type=click.Choice(["token", "sample", "scores"]),
    default="token",
    show_default=True,
    help="As in `tacit chat`: the same at all parties.",
)
@click.pass_obj
def deal(
    edge: "Edge", job: Path, prompt: int, tokens: int, out: Path, keys: Path, reveal: "Reveal"
) -> None:
    """Have a session of a sealed chat dealt for ahead, into a file.

    It is held without the dealer of JOB then. You are the user; owner and dealer are up (`tacit
    serve-llm`, or `tacit chat --as`). FILE holds your part, and a folder beside the owner's key its
    own. Each is used once, in one session, which `tacit chat --as user --material FILE` holds with
    the owner alone. Who reads FILE and sees what the owner sees can read your words: keep it as you
    keep a key.
    """
    say(edge.err, "starting …", "dim")
    from tacit.llm import ChatProtocol
    from tacit.llm.backend.chat import deal_as_user
    from tacit.llm.backend.chat_file import load_chat
    from tacit.llm.backend.protocol import choose_protocol
    from tacit.llm.sealed import Schedule

    name = choose_protocol(None, [load_chat(job).chat.protocol], "user")

    def forecast(size: int, passes: int) -> None:
        say(edge.err, f"{out} will have {size:,} bytes, for {passes} passes", "dim")

    with Stages(edge) as note:
        size = deal_as_user(
            job,
            out,
            Schedule(prompt=prompt, tokens=tokens),
            ChatProtocol(name=name, reveal=reveal),
            keys=keys,
            note=note,
            forecast=forecast,
        )
    say(edge.out, f"Material: {out}, {size:,} bytes: a prompt of {prompt} and {tokens} tokens")


COMMANDS: tuple[click.Command, ...] = (deal,)
