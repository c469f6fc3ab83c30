"""Several processes that are asked together: one JSON line each way. Needs the standard library."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO, Any

Answer = dict[str, Any]  # what a process of our own says: numbers and texts

ONE_THREAD = {
    f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMBA", "VECLIB")
}
"""Every party of every contender computes on one thread: two parties fill two cores."""


class Crew:
    """Child processes in step. Each reads questions from its input and ends when that closes."""

    def __init__(
        self,
        commands: Sequence[Sequence[str]],
        *,
        settings: Sequence[Mapping[str, str]],
        pass_fds: Sequence[int] = (),
        errors: IO[bytes] | None = None,
    ) -> None:
        self._processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, **ONE_THREAD, **own},
                pass_fds=pass_fds,
            )
            for command, own in zip(commands, settings, strict=True)
        ]

    def ask(self, question: Mapping[str, object]) -> list[Answer]:
        """Put a question to all, and wait for the answer of each.

        Raises:
            EOFError: one of them has ended.
        """
        line = json.dumps(question) + "\n"
        try:
            for process in self._processes:
                _input(process).write(line)
                _input(process).flush()
        except BrokenPipeError:
            raise EOFError("a party has ended") from None
        return [_read_answer(process) for process in self._processes]

    def close(self) -> None:
        """Let all of them end, and end those that do not."""
        for process in self._processes:
            try:
                _input(process).close()
            except BrokenPipeError:
                continue
        for process in self._processes:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _input(process: subprocess.Popen[str]) -> IO[str]:
    if process.stdin is None:
        raise EOFError("the process was started without an input")
    return process.stdin


def _read_answer(process: subprocess.Popen[str]) -> Answer:
    """Return the next line that is a JSON object; libraries may write other things in between."""
    for line in process.stdout or ():
        if line.startswith("{"):
            answer: Answer = json.loads(line)
            return answer
    raise EOFError(f"a party has ended with exit code {process.wait()}")
