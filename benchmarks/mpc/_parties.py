"""Our side of the mpc benchmarks: three processes over mutual TLS, kept alive for many runs.

As a module: `Parties` starts the processes and asks them. As a script: one of the parties. A run
shares the inputs, waits until the dealer's material has arrived, and is timed from there to the
moment when both computing parties hold their shares of the result; then the result is opened and
compared. What the dealer does before is timed apart, and so is what the computing parties send
each other before the query: weights under masks, or, while inputs are shared, P1's shares.
"""

import atexit
import hashlib
import json
import resource
import socket
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, process_time
from typing import cast

import torch
from bench import NotMeasured, as_program
from mpc._crew import Answer, Crew
from mpc._floor import run_floor
from mpc._programs import ROLES, Hooks, opened, owner_of, plan_row, work_on
from mpc._rows import Row, largest_error, make_operands

from tacit.cli.memory import keep_freed_memory
from tacit.crypto import load_identity, make_identity
from tacit.mpc import compute, serve
from tacit.party import Meeting, Progress, Session, session_over
from tacit.transport import (
    Credentials,
    LinkLimits,
    Meter,
    PacketLink,
    Peer,
    ShapedLink,
    listen,
    mesh,
)

NAMES = (ROLES.first, ROLES.second, ROLES.dealer)
LIMITS = LinkLimits(max_frame_bytes=4 << 30, queue_bytes=4 << 30, stash_bytes=16 << 30)


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a row."""

    online_ms: float
    offline_ms: float
    largest_error: float
    processor_ms: float


@dataclass(frozen=True, kw_only=True)
class Whole:
    """One run of a row in which nobody waited for material; memory is the parties' peaks so far."""

    wall_ms: float
    memory_mb: float


class Parties:
    """Starts three parties at the first run, and ends them with the process that made this."""

    def __init__(self, *, rtt_ms: float = 0.0) -> None:
        self._rtt_ms = rtt_ms
        self._stack: ExitStack | None = None
        self._crew: Crew | None = None

    def run(self, row: Row, protocol: str) -> Run:
        """Run a row once.

        Raises:
            NotMeasured: the row cannot be planned, or a party failed.
        """
        plan = plan_row(row, protocol)
        crew = self._crew or self._start()
        try:
            answers = crew.ask({"row": row.name, "protocol": protocol})
        except EOFError:
            reason = self._last_words()
            self.close()
            raise NotMeasured(f"a party failed: {reason}") from None
        first, second, dealer = answers
        # Without a dealer it is the two parties who begin, with each other.
        began = [dealer] if plan.roles.dealer else [first, second]
        begun = "dealt" if plan.handed else "shared"
        before = max(one["ready"] - one[begun] for one in (first, second))
        return Run(
            online_ms=1e3
            * (max(first["end"], second["end"]) - min(first["start"], second["start"])),
            offline_ms=1e3 * (second["dealt"] - min(one["began"] for one in began) + before),
            largest_error=first["error"],
            processor_ms=1e3 * sum(one["processor"] for one in answers),
        )

    def run_whole(self, row: Row, protocol: str) -> Whole:
        """Run a row without waiting for material: all that it takes, from the first to the last."""
        plan_row(row, protocol)
        crew = self._crew or self._start()
        answers = crew.ask({"row": row.name, "protocol": protocol, "waits": False})
        ends = [one["end"] for one in answers[:2]]
        return Whole(
            wall_ms=1e3 * (max(ends) - min(one["asked"] for one in answers)),
            memory_mb=sum(one["memory"] for one in answers),
        )

    def floor_ms(self, row: Row, protocol: str) -> float:
        """Measure the least that a permuted row can take, see `_mpc_floor`."""
        plan_row(row, protocol)
        crew = self._crew or self._start()
        answers = crew.ask({"row": row.name, "protocol": protocol, "floor": True})[:2]
        return float(1e3 * (max(a["end"] for a in answers) - min(a["start"] for a in answers)))

    def close(self) -> None:
        """End the parties; the next run starts new ones."""
        stack, self._stack, self._crew = self._stack, None, None
        if stack is not None:
            stack.close()

    def _start(self) -> Crew:
        self._stack = stack = ExitStack()
        atexit.register(self.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listeners = [stack.enter_context(listen("127.0.0.1", 0)) for _ in NAMES]
        job = {
            "folder": str(folder),
            "rtt_ms": self._rtt_ms,
            "peers": {
                name: [make_identity(name, folder).fingerprint, listener.getsockname()[1]]
                for name, listener in zip(NAMES, listeners, strict=True)
            },
        }
        (folder / "job.json").write_text(json.dumps(job))
        self._errors = stack.enter_context((folder / "errors").open("w+b"))
        self._crew = Crew(
            [
                as_program("mpc/_parties", name, str(folder), str(listener.fileno()))
                for name, listener in zip(NAMES, listeners, strict=True)
            ],
            settings=[{}] * len(NAMES),
            pass_fds=[listener.fileno() for listener in listeners],
            errors=self._errors,
        )
        stack.callback(self._crew.close)
        return self._crew

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"


class _Party:
    """A party between its start and its end."""

    def __init__(self, me: str) -> None:
        self.me = me
        self._began = 0.0
        self._session: Session | None = None

    def attend(self, folder: Path, listener: socket.socket) -> None:
        """Meet the others and run what is asked, until the questions end."""
        job = json.loads((folder / "job.json").read_text())
        identity = load_identity(folder, self.me)
        meter = Meter(self.me)
        links = mesh(
            self.me,
            {
                name: Peer(("127.0.0.1", port), print_)
                for name, (print_, port) in job["peers"].items()
                if name != self.me
            },
            credentials=Credentials(identity.certificate_file, identity.key_file),
            listener=listener,
            meter=meter,
            limits=LIMITS,
        )
        if job["rtt_ms"]:
            # The links of a mesh can be wrapped; their declared type does not say so.
            links = {
                name: ShapedLink(cast(PacketLink, link), rtt_ms=job["rtt_ms"])
                for name, link in links.items()
            }
        digest = hashlib.sha256(json.dumps(job).encode()).digest()
        meeting = Meeting(parties=NAMES, job_digest=digest, limits=LIMITS)
        progress = Progress(self._note)
        with session_over(self.me, meeting, links=links, meter=meter, progress=progress) as session:
            self._session = session
            for line in sys.stdin:
                question = json.loads(line)
                row, protocol = Row.parse(question["row"]), question["protocol"]
                if question.get("floor"):
                    plan = plan_row(row, protocol)
                    answer: Answer = run_floor(session, plan, lambda: self._meet(session))
                else:
                    began = process_time()
                    answer = self._run(session, row, protocol, waits=question.get("waits", True))
                    answer["processor"] = process_time() - began
                    answer["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
                print(json.dumps(answer), flush=True)

    def _run(self, session: Session, row: Row, protocol: str, *, waits: bool) -> Answer:
        plan = plan_row(row, protocol)
        answer: Answer = {"asked": monotonic()}
        if self.me == ROLES.dealer:
            serve(session, plan, inputs={})
            return {**answer, "began": self._began}

        def wait_for_material() -> None:
            if plan.roles.dealer and waits:
                session.recv(ROLES.dealer, "bench/dealt", (1,))
            answer["dealt"], answer["began"] = monotonic(), self._began

        def note_inputs() -> None:
            answer["shared"] = monotonic()

        def start() -> None:
            answer["ready"] = monotonic()
            self._meet(session)
            answer["start"] = monotonic()

        def stop() -> None:
            answer["end"] = monotonic()

        program = opened(work_on(row, Hooks(wait_for_material, note_inputs, start, stop)))
        result = compute(session, plan, program, inputs=self._inputs(row))
        if plan.roles.dealer and not waits:
            session.recv(ROLES.dealer, "bench/dealt", (1,))
        if result is not None:
            answer["error"] = largest_error(row, result.numpy())
        return answer

    def _inputs(self, row: Row) -> dict[str, torch.Tensor]:
        return {
            operand.name: torch.from_numpy(operand.values)
            for number, operand in enumerate(make_operands(row))
            if owner_of(number) == self.me
        }

    def _meet(self, session: Session) -> None:
        """Wait for the other computing party, so that both begin together."""
        other = ROLES.second if self.me == ROLES.first else ROLES.first
        session.send(other, "bench/ready", torch.zeros(1, dtype=torch.int64), phase="setup")
        session.recv(other, "bench/ready", (1,))

    def _note(self, stage: str, done: int, total: int) -> None:
        """Tell the computing parties when everything is dealt; it comes after the material."""
        if stage == "prepare" and done == 0:
            self._began = monotonic()
        if stage != "deal" or self._session is None:
            return
        if done == 0:
            self._began = monotonic()
        if done == total:
            for name in ROLES.computing:
                word = torch.zeros(1, dtype=torch.int64)
                self._session.send(name, "bench/dealt", word, phase="setup")


if __name__ == "__main__":
    torch.set_num_threads(1)
    keep_freed_memory()  # as the parties of the command line do
    with socket.socket(fileno=int(sys.argv[3])) as own_listener:
        _Party(sys.argv[1]).attend(Path(sys.argv[2]), own_listener)
