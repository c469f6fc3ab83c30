"""Greedy tokens of a sealed chat beside the plain model's: how many are the same.

    python benchmarks/run.py llm/sealed_tokens MODEL [--seconds 280] [--limit 64]

Answers to fixed prompts, token by token, until the time is up. At each place the plain model reads
what the sealed chat has said, so that one different token does not count twice. Places whose two
best plain scores are within 0.02 are counted apart.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from tacit.llm import Cache, Message, Sampling, next_logits, open_checkpoint, prompt_ids
from tacit.llm.sealed import (
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import Meeting, Session, run_processes

TIE = 0.02
ASKED = (
    "What is the capital of France?",
    "Tell me a short story about a dog.",
    "How do plants grow?",
    "Write a poem about the sea.",
    "Why is the sky blue?",
    "Name three animals.",
    "What is machine learning?",
    "How do I cook rice?",
    "Who was Isaac Newton?",
    "Explain what a river is.",
    "What do bees do?",
    "Give me advice for an exam.",
    "What is water made of?",
    "Describe a rainy day.",
    "How does a car move?",
    "What is a friend?",
    "List the seasons.",
    "Why do people sleep?",
    "What is a computer?",
    "Say hello in another language.",
)


@dataclass(frozen=True)
class Part:
    """What one party does, in a process of its own."""

    role: str
    model: Path
    seconds: float
    limit: int

    def __call__(self, session: Session) -> list[int]:
        """Take part; the user returns places, equal ones, ties, different ties and saturated."""
        torch.set_num_threads(1)
        found = open_checkpoint(self.model)
        if self.role == "owner":
            serve_sealed_owner(session, open_sealed_vault(found.load()))
        elif self.role == "dealer":
            serve_sealed_dealer(session, found.architecture)
        else:
            return self._ask(session)
        return []

    def _ask(self, session: Session) -> list[int]:
        found, began = open_checkpoint(self.model), time.monotonic()
        model, tokenizer = found.load(), found.tokenizer()
        client = SealedClient(session, found.architecture)
        counts = [0, 0, 0, 0, 0]
        for text in ASKED:
            ids = prompt_ids(tokenizer, [Message(role="user", content=text)])
            cache, fresh = Cache(), list(ids)
            for token in client.generate(SealedMemory(), ids, Sampling(), limit=self.limit):
                scores = next_logits(model, fresh, cache)
                best = scores.topk(2).values
                is_tie, fresh = float(best[0] - best[1]) < TIE, [token]
                is_same = token == int(scores.argmax())
                counts[2 if is_tie else 0] += 1
                counts[3 if is_tie else 1] += is_same
                if time.monotonic() - began > self.seconds:
                    break
            counts[4] = client.saturated
            print(f"{text!r}: {counts}", flush=True)
            if time.monotonic() - began > self.seconds:
                break
        client.leave()
        return counts


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=280.0)
    parser.add_argument("--limit", type=int, default=64)
    options = parser.parse_args()
    roles = ("owner", "user", "dealer")
    parts = {role: Part(role, options.model, options.seconds, options.limit) for role in roles}
    meeting = Meeting(parties=roles, job_digest=bytes(32))
    places, same, ties, same_ties, loud = run_processes(parts, meeting)["user"]
    print(
        f"{same} of {places} greedy tokens are the plain model's; near ties {same_ties} of {ties}"
    )
    print(f"{loud} rows of attention saturated")


if __name__ == "__main__":
    main()
