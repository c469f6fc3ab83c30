"""The entry point: one group of commands, and what every ending looks like to the user.

Exit codes: 0 done, 1 our bug, 2 bad input, 3 a claim contradicted, 4 a party failed or disagreed;
128 + n after the signal n (130 for Ctrl-C).
"""

import atexit
import logging
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import click
from rich.console import Console

from tacit import __version__
from tacit.cli.commands.group import COMMANDS, Edge
from tacit.cli.failure import BUG, ChildBugError, Failure, describe
from tacit.cli.memory import keep_freed_memory
from tacit.cli.screen import say

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_EPILOG = """\b
Start here:
  tacit demo
A job between hosts, on each of them:
  tacit keys NAME                 makes a key; its fingerprint goes into every job file
  tacit plan job.toml             says what will be sent and revealed
  tacit party job.toml --as NAME  takes part
"""


class _InOrder(click.Group):
    """A group that lists its commands in the order in which one needs them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(
    cls=_InOrder,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="tacit", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, help="Show tracebacks and log messages.")
@click.pass_obj
def cli(edge: Edge, debug: bool) -> None:
    """Private machine learning between parties that must not show each other their data."""
    edge.is_debugging = debug
    logging.basicConfig(level=logging.DEBUG if debug else logging.WARNING, stream=sys.stderr)


for _command in COMMANDS:
    cli.add_command(_command)


def entry() -> None:
    """Run the command line of this process and exit."""
    code = BUG

    def leave() -> None:
        # Taking torch's modules apart takes a third of a second, more than some commands do.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    # What is registered first comes last: all others have cleaned up by then.
    atexit.register(leave)
    # Of the processes that we start: the folder of a job is often somebody else's, and its files
    # are no modules of ours.
    os.environ["PYTHONSAFEPATH"] = "1"
    keep_freed_memory()
    edge = Edge(out=Console(), err=Console(stderr=True))

    def stop(number: int, frame: FrameType | None) -> None:
        edge.stopped_by = number
        raise KeyboardInterrupt

    def warn(message: Warning | str, *_: object, **__: object) -> None:
        # The party that was started by hand says it; its children have read the same file.
        if not edge.is_child:
            say(edge.err, f"warning: {message}", "yellow")

    for number in _SIGNALS:
        signal.signal(number, stop)
    warnings.showwarning = warn
    code = run_command(sys.argv[1:], edge)
    sys.exit(code)


def run_command(arguments: Sequence[str], edge: Edge) -> int:
    """Run one command and return the exit code; whatever happens is said in one message."""
    try:
        code = cli.main(list(arguments), prog_name="tacit", obj=edge, standalone_mode=False)
        edge.out.file.flush()
        return code if isinstance(code, int) else 0
    except (click.Abort, KeyboardInterrupt):
        if not edge.is_child:
            say(edge.err, "stopped")
        return 128 + (edge.stopped_by or signal.SIGINT)
    except SystemExit as leaving:
        # click and rich leave like this when nobody reads on; completion does too, with 0.
        return 128 + signal.SIGPIPE if leaving.code else 0
    except click.UsageError as error:
        error.show()
        return describe(error).exit_code
    except Exception as error:  # the one broad except: nobody shall see a traceback
        return _fail(error, edge)


def _fail(error: Exception, edge: Edge) -> int:
    failure = describe(error)
    if edge.pipe is not None:
        edge.pipe.send("failed", **failure.fields())
        return failure.exit_code
    say(edge.err, f"error: {failure.message}", "bold red")
    if failure.exit_code == BUG:
        details = error.details if isinstance(error, ChildBugError) else failure.details
        _show_details(failure, details, edge)
    return failure.exit_code


def _show_details(failure: Failure, details: str, edge: Edge) -> None:
    if edge.is_debugging:
        say(edge.err, details)
        return
    with tempfile.NamedTemporaryFile(
        "w", prefix="tacit-error-", suffix=".txt", encoding="utf-8", delete=False
    ) as file:
        file.write(details)
    say(edge.err, f"This is a bug in tacit. Please report it with {file.name} (look through it")
    say(edge.err, "first: it may name files), or show it with: tacit --debug …")
