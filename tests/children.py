"""Parties as real processes, quick to start because a fork server has loaded torch already."""

import multiprocessing
import os
import signal
import sys
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tacit.cli.main", "tacit.cli.launch.member", "sklearn.linear_model"]
)


def run_party(arguments, log, die_at, freeze_at):
    """Run one `tacit` command in this process; die or freeze at the given link operation."""
    with Path(log).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if die_at is not None:
        signal_after(die_at, signal.SIGKILL)
    if freeze_at is not None:
        signal_after(freeze_at, signal.SIGSTOP)
    from tacit.cli.main import entry

    sys.argv = ["tacit", *arguments]
    entry()


def signal_after(operations, number):
    """Arrange for a signal at the n-th message that this process sends or waits for."""
    from tacit.transport.line import Line

    left = [operations]

    def counted(method):
        def call(*arguments, **named):
            if left[0] <= 0:
                os.kill(os.getpid(), number)
            left[0] -= 1
            return method(*arguments, **named)

        return call

    if operations < 0:
        os.kill(os.getpid(), number)
    Line.put, Line.take = counted(Line.put), counted(Line.take)


def start(arguments, log, *, die_at=None, freeze_at=None):
    process = CONTEXT.Process(target=run_party, args=(arguments, str(log), die_at, freeze_at))
    process.start()
    return process
