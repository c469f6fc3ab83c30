"""Sealed chat between three processes over loopback: seconds per token.

    taskset -c 0,1 python benchmarks/run.py llm/sealed_apart [SHAPE] [--tokens 8]

Weights are random, of the shapes of `llm_sealed.py`; one thread per process.
"""

import argparse
import time
from dataclasses import dataclass
from statistics import median

import torch
from llm.sealed import LLAMA, PROMPT, REST, SHAPES, make_model

from tacit.cli.memory import keep_small_blocks
from tacit.llm import Architecture, Sampling
from tacit.llm.sealed import (
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import Meeting, Session, run_processes


@dataclass(frozen=True)
class Part:
    """What one party does, in a process of its own."""

    shape: str
    role: str
    tokens: int

    def __call__(self, session: Session) -> list[float]:
        """Take part; the user returns the seconds of every token."""
        keep_small_blocks()  # as the parties of a chat do
        torch.set_num_threads(1)
        a, times = Architecture(**LLAMA, **SHAPES[self.shape], **REST[self.shape]), []
        if self.role == "owner":
            serve_sealed_owner(session, open_sealed_vault(make_model(self.shape)))
        elif self.role == "dealer":
            serve_sealed_dealer(session, a)
        else:
            client, began = SealedClient(session, a), time.monotonic()
            for _ in client.generate(SealedMemory(), PROMPT, Sampling(), limit=self.tokens):
                times.append(time.monotonic() - began)
                began = time.monotonic()
            client.leave()
        return times


def main() -> None:
    """Measure one shape."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shape", nargs="?", choices=SHAPES, default="minimind")
    parser.add_argument("--tokens", type=int, default=8)
    options = parser.parse_args()
    roles = ("owner", "user", "dealer")
    meeting = Meeting(parties=roles, job_digest=bytes(32))
    parts = {role: Part(options.shape, role, options.tokens) for role in roles}
    times = run_processes(parts, meeting)["user"]
    print(f"{options.shape}: first token {times[0]:.2f} s, then {median(times[1:]):.3f} s")


if __name__ == "__main__":
    main()
