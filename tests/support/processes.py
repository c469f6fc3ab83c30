"""Parties as real processes, quick to start because a fork server has loaded torch already."""

import multiprocessing
import os
import runpy
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("tacit.cli.main", "tacit.cli.launch.member", "sklearn.linear_model"),
        *("tacit.jobs.infer", "tacit.jobs.train", "tacit.jobs.split"),
    ]
)


def run_party(arguments, log, die_at, freeze_at, lie_at):
    """Run one `tacit` command in this process; die, freeze or lie at the given operation."""
    with Path(log).open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if die_at is not None:
        signal_after(die_at, signal.SIGKILL)
    if freeze_at is not None:
        signal_after(freeze_at, signal.SIGSTOP)
    if lie_at is not None:
        lie_in(lie_at)
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


def lie_in(message):
    """Change one word of the n-th message that this process sends as a computing party."""
    from tacit.mpc.contract import Channel

    left, send = [message], Channel.send

    def lying(channel, to, values, **named):
        if to == channel.other:
            if not left[0]:
                values = values.clone()
                values.view(-1)[0] += 1
            left[0] -= 1
        send(channel, to, values, **named)

    Channel.send = lying


def start(arguments, log, *, die_at=None, freeze_at=None, lie_at=None):
    how = (arguments, str(log), die_at, freeze_at, lie_at)
    process = CONTEXT.Process(target=run_party, args=how)
    process.start()
    return process


class Program:
    """A `tacit` command, or a script, as a process of its own; used like `subprocess.Popen`.

    It does what `python -m tacit` does, and costs no import of torch. What it starts in turn are
    interpreters of their own.
    """

    def __init__(self, *arguments, folder, script=None, is_leader=False):
        """Start it in a folder; what a leader of a session starts can be killed with it."""
        (typed, mine), *said = (CONTEXT.Pipe(duplex=False) for _ in range(3))
        theirs = (typed, *(end for _, end in said))
        how = (theirs, str(folder), script and str(script), [*map(str, arguments)], is_leader)
        self._process = CONTEXT.Process(target=run_program, args=how)
        self._process.start()
        self.stdin = os.fdopen(os.dup(mine.fileno()), "w")
        self.stdout, self.stderr = (os.fdopen(os.dup(one.fileno())) for one, _ in said)
        for one in (*theirs, mine, *(start for start, _ in said)):
            one.close()
        self._said = None
        self.pid = self._process.pid
        self.terminate, self.kill = self._process.terminate, self._process.kill

    def send_signal(self, number):
        os.kill(self.pid, number)

    @property
    def returncode(self):
        return self._process.exitcode

    poll = returncode.fget

    def wait(self, timeout=None):
        self._process.join(timeout)
        assert self.returncode is not None, f"still running after {timeout} s"
        return self.returncode

    def communicate(self, timeout=240):
        """Close its input, and return what it says until it ends."""
        with suppress(BrokenPipeError):
            self.stdin.close()
        if self._said is None:
            with ThreadPoolExecutor(2) as pool:
                said = pool.map(_read, (self.stdout, self.stderr))
                self._process.join(timeout)
                if self.returncode is None:  # its streams end with it
                    self.kill()
                    raise AssertionError(f"still running after {timeout} s")
                self._said = list(said)
        self.wait(timeout)
        return self._said


def _read(stream):
    with stream:
        return stream.read()


def run_program(theirs, folder, script, arguments, is_leader):
    """Become the program: its streams, its folder, its arguments."""
    if is_leader:
        os.setsid()
    # A shell lets what it starts in the background ignore this one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, pipe in enumerate(theirs):
        os.dup2(pipe.fileno(), number)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(folder)
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.argv = [script or "tacit", *arguments]
    if script:
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
        return
    from tacit.cli.main import entry

    entry()
