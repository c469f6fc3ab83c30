"""The commands, as click sees them. What they do is imported when they run, because it is heavy."""

import json
import os
import signal
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from click.shell_completion import CompletionItem, get_completion_class
from rich.console import Console

from tacit.cli.commands import chat
from tacit.cli.commands import deal as deal_command
from tacit.cli.commands import hosts as host_command
from tacit.cli.commands import serve as serve_command
from tacit.cli.commands import studio as studio_command
from tacit.cli.commands.audit import audit
from tacit.cli.commands.split import split
from tacit.cli.commands.verify import verify
from tacit.cli.screen import say, working
from tacit.errors import ConfigError
from tacit.jobs.toml import read_toml

if TYPE_CHECKING:
    from tacit.party import StatusPipe
    from tacit.result import Result


@dataclass
class Edge:
    """What the outermost function shares with the commands: where to speak, and whom to tell."""

    out: Console
    err: Console
    is_debugging: bool = False
    is_child: bool = False
    pipe: "StatusPipe | None" = None
    stopped_by: int | None = None


def _examples(*lines: str) -> str:
    """Lay out commands below the help text; the first line keeps click from filling them."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def _complete_party(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Suggest the parties of the job file that was typed before."""
    # While --as has no value yet, click leaves the arguments unparsed.
    job = context.params.get("job") or next(iter(context.args), "")
    try:
        parties = read_toml(Path(job)).get("parties")
    except ConfigError:
        return []
    names = parties if isinstance(parties, dict) else {}
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


_INTRODUCTION = """\
A hospital has patient records; a lab has a model that tells benign tumours.
Neither may see what the other has. A dealer gives them random numbers, and they
predict together: three processes, encrypted links, only the answers come out.
"""
_edge = click.make_pass_decorator(Edge)
_PATH = click.Path(path_type=Path)
_JOB = click.argument("job", type=_PATH)
_KEYS = click.option(
    "--keys", type=_PATH, default=Path("keys"), show_default=True, help="Folder with the keys."
)

_FRESH = click.option(
    "--fresh", "is_fresh", is_flag=True, help="Discard what a stopped training or fit has kept."
)

_PROGRESS = click.option(
    "--progress", type=_PATH, help="Write what happens into this file, as lines of JSON."
)


@click.command(epilog=_examples("tacit demo"))
@click.option("--out", type=_PATH, help="Folder for the result.  [default: out/demo]")
@_edge
def demo(edge: Edge, out: Path | None) -> None:
    """Run the example: a hospital, a lab and a dealer."""
    say(edge.out, _INTRODUCTION)
    with working(edge.err, "starting"):
        from tacit.cli.launch.processes import run_job

    with resources.as_file(resources.files("tacit.cli") / "demo.toml") as path:
        result, folder = run_job(path, keys=Path("keys"), out=out, console=edge.err)
    _show(edge, result, folder)


@click.command(epilog=_examples("tacit run examples/jobs/predict-breast-cancer.toml"))
@_JOB
@_KEYS
@click.option("--out", type=_PATH, help="Folder for the result, instead of the job's.")
@_FRESH
@_PROGRESS
@_edge
def run(
    edge: Edge, job: Path, keys: Path, out: Path | None, is_fresh: bool, progress: Path | None
) -> None:
    """Run every party of JOB as a process on this machine.

    The parties talk over encrypted links as they would between hosts. Parties without a key in
    the job get one that is thrown away at the end; addresses in the job are not used.
    """
    with working(edge.err, "starting"):
        from tacit.cli.journal import keeping
        from tacit.cli.launch.processes import run_job

    with keeping(progress):
        result, folder = run_job(job, keys=keys, out=out, console=edge.err, is_fresh=is_fresh)
    _show(edge, result, folder)


class _How(TypedDict):
    """Options of `party`."""

    at: str | None
    is_fresh: bool
    progress: Path | None
    listen_fd: int | None
    status_fd: int | None
    peers_file: Path | None


@click.command(epilog=_examples("tacit party job.toml --as hospital --keys ~/keys"))
@_JOB
@click.option(
    "--as", "name", required=True, shell_complete=_complete_party, help="The party to be."
)
@_KEYS
@click.option("--out", type=_PATH, help="Folder for the result.  [default: the job's, with -NAME]")
@click.option("--listen", "at", metavar="HOST:PORT", help="Listen here, not on my job address.")
@_FRESH
@_PROGRESS
@click.option("--listen-fd", type=int, hidden=True)
@click.option("--status-fd", type=int, hidden=True)
@click.option("--peers-file", type=_PATH, hidden=True)
@_edge
def party(
    edge: Edge, /, job: Path, name: str, keys: Path, out: Path | None, **how: Unpack[_How]
) -> None:
    """Run one party of JOB on this host.

    Every party is started by its own people, with the same job file (paths of files and addresses
    may differ). All keys must be in it. The result is this party's own view.
    """
    status_fd = how["status_fd"]
    edge.is_child = status_fd is not None
    if edge.is_child:
        # The parent cleans up after us; leaving at once is all that is asked of a child.
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))
    with nullcontext() if edge.is_child else working(edge.err, "starting"):
        from tacit.cli.journal import keeping
        from tacit.cli.launch.member import run_alone, run_child
        from tacit.party import StatusPipe

    if status_fd is None:
        at, is_fresh = how["at"], how["is_fresh"]
        with keeping(how["progress"]):
            result, folder = run_alone(
                job, name, keys=keys, out=out, at=at, console=edge.err, is_fresh=is_fresh
            )
        _show(edge, result, folder)
        return
    # The descriptors come from `tacit run` alone.
    edge.pipe = StatusPipe(status_fd)
    entries, listen_fd, stage = how["peers_file"], how["listen_fd"], out
    if entries is None or listen_fd is None or stage is None:
        raise click.UsageError("--status-fd needs --listen-fd, --peers-file and --out.")
    run_child(
        job,
        name,
        keys=keys,
        stage=stage,
        entries=entries,
        listen_fd=listen_fd,
        pipe=edge.pipe,
        is_fresh=how["is_fresh"],
    )


@click.command(
    epilog=_examples(
        "tacit keys hospital",
        "tacit keys hospital --show",
        "tacit keys hospital --renew",
        "tacit keys clients --job fl.toml",
    )
)
@click.argument("name")
@click.option(
    "--dir", "folder", type=_PATH, default=Path("keys"), show_default=True, help="Where it lies."
)
@click.option("--show", is_flag=True, help="Print the lines of a key that exists already.")
@click.option("--renew", is_flag=True, help="Move the key into old/ and make another.")
@click.option(
    "--job",
    type=_PATH,
    help="Make what every client of this federated job must hold: NAME-0.secret and so on, and "
    "NAME.public for its server.",
)
@_edge
def keys(edge: Edge, name: str, folder: Path, show: bool, renew: bool, job: Path | None) -> None:
    """Make a key for NAME and print its job file lines.

    The key never leaves this host; the others pin its fingerprint. An existing key is never
    overwritten. With --job: secrets for the clients of a job, each for one of them alone; whoever
    makes them knows them all, so it must not be whoever runs the server.
    """
    from tacit.crypto import load_identity, make_identity, renew_identity

    if show + renew + (job is not None) > 1:
        raise click.UsageError("--show, --renew and --job do different things: give one of them.")
    if job is not None:
        from tacit.jobs.federated import make_secrets

        for line in make_secrets(job, name, folder):
            say(edge.out, line)
        return
    if renew:
        identity, old, moved = renew_identity(name, folder)
        say(edge.err, f"The old key is kept as {moved}. In every job file, of clients too,")
        say(edge.err, f"the line below takes the place of {old}. Until it does, the others")
        say(edge.err, f"refuse {name!r}, and whoever has the old key passes for {name!r}.")
    else:
        identity = load_identity(folder, name) if show else make_identity(name, folder)
    if not show:
        say(edge.err, f"{identity.key_file} is secret and stays here. For every job file:", "dim")
    say(edge.out, f'[parties.{name}]\nkey = "{identity.fingerprint}"')


@click.command(
    epilog=_examples(
        "tacit plan job.toml", "tacit plan job.toml --rows 5000 --features 30 --rtt-ms 40 --mbit 80"
    )
)
@_JOB
@click.option(
    "--rows",
    type=click.IntRange(1),
    metavar="N",
    help="Rows, if the data is not here; for a chat, tokens of the prompt.",
)
@click.option(
    "--features", type=click.IntRange(1), metavar="N", help="Features, if the data is not here."
)
@click.option("--model", metavar="MODEL", help="For a chat: as in `tacit chat`.")
@click.option(
    "--all-protocols", "is_compared", is_flag=True, help="Cost, trust and leaks under each, beside."
)
@click.option(
    "--rtt-ms", type=click.FloatRange(0, 1e6), metavar="X", help="Round-trip time of a network."
)
@click.option(
    "--mbit", type=click.FloatRange(1e-6, 1e9), metavar="Y", help="Its bandwidth in Mbit/s."
)
@_edge
def plan(
    edge: Edge,
    /,
    job: Path,
    model: str | None,
    rtt_ms: float | None,
    mbit: float | None,
    is_compared: bool,
    **sizes: int | None,
) -> None:
    """Forecast what JOB will send, take and reveal. Nothing is sent.

    JOB is a job file of any kind, or the file that the three parties of a chat share.
    """
    if (rtt_ms is None) != (mbit is None):
        raise click.UsageError("--rtt-ms and --mbit describe one network: give both or neither.")
    network = None if rtt_ms is None or mbit is None else (rtt_ms, mbit)
    with working(edge.err, "planning"):
        from tacit.cli.commands.plan import compare_protocols, plan_file
        from tacit.cli.environment import data_folders
        from tacit.jobs.kind import Asked

        asked = Asked(search=data_folders(), **sizes)  # --rows and --features
        if is_compared:
            shown = compare_protocols(job, asked, network=network)
        else:
            shown = plan_file(job, asked, model=model, network=network)
    edge.out.print(shown)


@click.command(
    epilog=_examples(
        "tacit report out/demo/result.json",
        "tacit report out/demo/result.json --pdf demo.pdf --csv tables",
    )
)
@click.argument("result", type=_PATH)
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, parameter, value: _print_schema(context) if value else None,
    help="Print the JSON Schema of a result.json, and nothing else.",
)
@click.option("--html", type=_PATH, help="The page to write.  [default: report.html beside it]")
@click.option("--pdf", type=_PATH, help="Print the page into this file; needs Chromium or Chrome.")
@click.option("--csv", type=_PATH, help="Write every table and curve as CSV into this folder.")
@_edge
def report(edge: Edge, result: Path, html: Path | None, pdf: Path | None, csv: Path | None) -> None:
    """Show RESULT, a result.json, again, and write its page again."""
    from tacit import report as reports

    found = reports.load(result)
    page = html or result.with_name("report.html")
    reports.write(found, page)
    edge.out.print(reports.summarise(found))
    say(edge.out, f"\nReport: {page}")
    if csv is not None:
        say(edge.out, f"Tables: {len(reports.write_csv(found, csv))} files in {csv}")
    if pdf is not None:
        reports.write_pdf(found, pdf)
        say(edge.out, f"PDF: {pdf}")


@click.command(
    epilog=_examples(
        "tacit completion bash > ~/.local/share/bash-completion/completions/tacit",
        "tacit completion zsh > ~/.zfunc/_tacit",
        "tacit completion fish > ~/.config/fish/completions/tacit.fish",
    )
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a SHELL."""
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"This version of click cannot complete for {shell}.")
    click.echo(found(context.find_root().command, {}, "tacit", "_TACIT_COMPLETE").source())


def _print_schema(context: click.Context) -> None:
    from tacit.report.schema import describe_result

    click.echo(json.dumps(describe_result(), ensure_ascii=False, indent=1))
    context.exit()


def _show(edge: Edge, result: "Result", folder: Path) -> None:
    from tacit import report as reports
    from tacit.jobs.folder import REPORT, RESULT

    edge.out.print()
    edge.out.print(reports.summarise(result))
    page = folder / REPORT
    say(edge.out, f"\nReport: {page if page.exists() else folder / RESULT}")


COMMANDS = (
    *(demo, run, party, keys, plan, report),
    *(verify, audit, split),
    *serve_command.COMMANDS,
    *chat.COMMANDS,
    *deal_command.COMMANDS,
    *studio_command.COMMANDS,
    *host_command.COMMANDS,
    completion,
)
