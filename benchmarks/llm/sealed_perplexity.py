"""Perplexity of answers under a sealed chat, with scores revealed, beside the plain model's.

    python benchmarks/run.py llm/sealed_perplexity MODEL DIALOGUES.jsonl.xz [--rows 8] [--tokens 60]

A row of the file has an ``ask`` and an ``answer``; without an ``ask``, its ``text`` is read from
the first token on. Both models read the same tokens, one after the other. Expected: within 0.5 %.
"""

import argparse
import json
import lzma
import math
from dataclasses import dataclass
from itertools import islice
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

Text = tuple[tuple[int, ...], tuple[int, ...]]
"""What is read first, and what is scored behind it."""


@dataclass(frozen=True)
class Part:
    """What one party does, in a process of its own."""

    role: str
    model: Path
    texts: tuple[Text, ...]

    def __call__(self, session: Session) -> list[float]:
        """Take part; the user returns how many tokens were scored, and both losses."""
        torch.set_num_threads(1)
        found = open_checkpoint(self.model)
        if self.role == "owner":
            serve_sealed_owner(session, open_sealed_vault(found.load(), reveal="scores"))
        elif self.role == "dealer":
            serve_sealed_dealer(session, found.architecture, reveal="scores")
        else:
            return self._score(session)
        return []

    def _score(self, session: Session) -> list[float]:
        found = open_checkpoint(self.model)
        model = found.load()
        client = SealedClient(session, found.architecture, reveal="scores")
        shown: list[torch.Tensor] = []
        compute = client._table.compute

        def noting(*arguments):  # type: ignore[no-untyped-def]
            outcome = compute(*arguments)
            shown.append(outcome.shown)
            return outcome

        client._table.compute = noting  # type: ignore[method-assign]
        count, sealed, plain = 0, 0.0, 0.0
        for head, tail in self.texts:
            memory, cache, fresh = SealedMemory(), Cache(), list(head)
            for token in tail:
                list(client.generate(memory, fresh, Sampling(), limit=1))
                wanted = next_logits(model, fresh, cache).double()
                sealed -= float(shown[-1][0].double().log_softmax(-1)[token])
                plain -= float(wanted.log_softmax(-1)[token])
                count, fresh = count + 1, [token]
        client.leave()
        return [count, sealed, plain]


def main() -> None:
    """Score some rows of a file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=60)
    options = parser.parse_args()
    tokenizer, texts = open_checkpoint(options.model).tokenizer(), []
    with lzma.open(options.texts, "rt", encoding="utf-8") as file:
        for row in map(json.loads, islice(file, options.rows)):
            if "ask" in row:
                asked = [Message(role="user", content=row["ask"][:40])]
                head, tail = prompt_ids(tokenizer, asked), tokenizer.encode(row["answer"])
            else:
                head, *tail = tokenizer.encode(row["text"])
                head = [head]
            texts.append((tuple(head), tuple(tail[: options.tokens])))
    roles = ("owner", "user", "dealer")
    parts = {role: Part(role, options.model, tuple(texts)) for role in roles}
    meeting = Meeting(parties=roles, job_digest=bytes(32))
    count, *losses = run_processes(parts, meeting)["user"]
    sealed, plain = (math.exp(loss / count) for loss in losses)
    print(f"{count:.0f} tokens: sealed {sealed:.3f}, plain {plain:.3f}, ratio {sealed / plain:.5f}")


if __name__ == "__main__":
    main()
