"""Questions as characters, and small language models that learn them with or without noise."""

import gzip
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
from audit._private import train_privately
from torch import Tensor, nn

from tacit.audit import seeded
from tacit.audit.memorisation import SmallSpeaker, see_module, train_speaker
from tacit.dp import BudgetTarget, DpSgd, Repeated, least_noise
from tacit.ring import Prg

LENGTH = 40
DELTA = 1e-5
KNOWN = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789 ?'.,"))
_INDEX = {c: i for i, c in enumerate(KNOWN)}


@dataclass(frozen=True, kw_only=True)
class Course:
    """How a small model is trained: its size, its epochs or noisy steps, and where."""

    device: str
    width: int = 64
    layers: int = 2
    epochs: int = 30
    dp_steps: int = 300
    dp_rate: float = 0.5

    @staticmethod
    def quick(device: str) -> "Course":
        """Return one that takes a second and teaches nothing."""
        return Course(device=device, width=32, layers=1, epochs=3, dp_steps=5)


def encode(text: str, *, is_padded: bool = True) -> list[int]:
    """Return the characters of a text as numbers, cut and padded to one length."""
    ids = [_INDEX[c] for c in text.lower() if c in _INDEX][:LENGTH]
    return ids + [_INDEX[" "]] * (LENGTH - len(ids)) if is_padded else ids


def questions(folder: Path, *, most: int | None = None) -> tuple[list[list[int]], list[list[int]]]:
    """Return the TREC questions that are trained on, and those for testing."""
    with gzip.open(folder / "trec/trec.jsonl.gz", "rt", encoding="utf8") as lines:
        rows = [json.loads(line) for line in lines]
    train, test = (
        [encode(row["text"]) for row in rows if row["split"] == part] for part in ("train", "test")
    )
    return train[:most], test


def teach(
    course: Course, texts: Tensor, budget: float, seed: int, *, owners: Tensor | None = None
) -> tuple[nn.Module, Repeated | None]:
    """Train a model, with DP-SGD where the budget is finite; return what was done to the texts."""
    torch.manual_seed(seed)
    model = SmallSpeaker(len(KNOWN), LENGTH, width=course.width, layers=course.layers)
    model = model.to(course.device)
    if math.isinf(budget):
        train_speaker(model, texts, epochs=course.epochs, generator=seeded(seed), rate=1e-3)
        return model, None

    def settings(multiplier: float) -> DpSgd:
        return DpSgd(
            steps=course.dp_steps,
            sample_rate=0.1,
            clip=1.0,
            multiplier=multiplier,
            rate=course.dp_rate,
            momentum=0.9,
        )

    target = BudgetTarget(epsilon=budget, delta=DELTA, accountant="fourier")
    # The grid of the noise costs a little on top of what is planned: plan for slightly less.
    noise = 1.001 * least_noise(lambda z: [settings(z).event], target)
    ids = texts.to(course.device)
    event = train_privately(
        model, ids[:, :-1], ids[:, 1:], settings(noise), prg=Prg.from_os(), owners=owners
    )
    return model, event


def perplexity(model: nn.Module, texts: list[list[int]]) -> float:
    """Return exp of the mean loss per character on texts that were not trained on."""
    seen = see_module(model, vocab=0, context=LENGTH)
    return math.exp(float(seen.losses(torch.tensor(texts)).mean()))
