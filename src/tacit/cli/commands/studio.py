"""The commands for a person at a page or a prompt: ``studio`` and ``init``."""

import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tacit.cli.screen import say, working

if TYPE_CHECKING:
    from tacit.cli.commands.group import Edge

_PATH = click.Path(path_type=Path)


@click.command(epilog="\b\nExamples:\n  tacit studio\n  tacit studio out --port 8080 --open")
@click.argument("folder", type=_PATH, default=Path("out"))
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="To listen on.  [default: a free one]"
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.pass_obj
def studio(edge: "Edge", folder: Path, port: int, opens: bool) -> None:
    """Serve a page on this machine to start, watch and compare jobs.

    Results are those below FOLDER. The address has a token in it: whoever has it can do here what
    you can with commands. Jobs that were started go on when the page is closed.
    """
    with working(edge.err, "starting"):
        from tacit.cli.studio.app import serve
        from tacit.jobs.folder import write_text

    def ready(address: str) -> None:
        say(edge.out, f"Open {address}")
        say(edge.err, "Stop with Ctrl-C; what runs goes on.", "dim")
        if opens:
            # By a file that its owner alone reads: everybody sees the words of a command.
            page = folder / ".studio" / "open.html"
            page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_text(page, f'<meta http-equiv="refresh" content="0;url={address}">')
            webbrowser.open(page.absolute().as_uri())

    serve(folder, port, ready)


@click.command(epilog="\b\nExamples:\n  tacit init\n  tacit init wards.toml --kind infer")
@click.argument("file", type=_PATH, default=Path("job.toml"))
@click.option("--kind", help="What kind of job, instead of asking.")
@click.pass_obj
def init(edge: "Edge", file: Path, kind: str | None) -> None:
    """Ask for a job at the terminal and write its FILE.

    The questions are those of the page that `tacit studio` serves, and so is the file.
    """
    with working(edge.err, "starting"):
        from tacit.cli.commands.init import ask_person, interview
        from tacit.jobs.kinds import KINDS

    if kind is not None and kind not in KINDS:
        raise click.UsageError(f"--kind: wanted one of {', '.join(KINDS)}, got {kind!r}.")
    written = interview(kind, file, edge.err, ask_person)
    say(edge.out, f"Job: {written}")
    say(edge.err, f"What it will do: tacit plan {written}. Run it: tacit run {written}", "dim")


COMMANDS: tuple[click.Command, ...] = (init, studio)
