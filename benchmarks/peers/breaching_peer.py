"""breaching's "Inverting Gradients" (Geiping et al. 2020) on updates that we have seen.

Its attacks need torch alone; the packages around them, which also import data sets and Hydra, are
entered without being run.
"""

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

Breach = Callable[[Any, Any, int, int], Any]
"""Given a seen update, its labels, the steps and a seed, return pictures within [0, 1]."""


class Settings(dict[str, Any]):
    """A mapping whose entries are attributes too, as the attacks read their settings."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def load_breaching(folder: Path) -> Breach:
    """Import the attack from a folder that holds the package."""
    for dotted in ("breaching", "breaching.cases", "breaching.cases.models"):
        package = types.ModuleType(dotted)
        package.__path__ = [str(folder.joinpath(*dotted.split(".")))]
        # Some of torch looks modules up by their spec.
        package.__spec__ = importlib.machinery.ModuleSpec(dotted, None, is_package=True)
        sys.modules[dotted] = package
    attacks = importlib.import_module("breaching.attacks.optimization_based_attack")

    def breach(seen: Any, labels: Any, steps: int, seed: int) -> Any:
        torch.manual_seed(seed)
        device = seen.update[0].device
        attacker = attacks.OptimizationBasedAttacker(
            seen.model, torch.nn.CrossEntropyLoss(), _settings(steps), {"device": device}
        )
        found, _ = attacker.reconstruct(*_messages(seen, labels), {}, dryrun=False)
        return found["data"].detach().clamp(0, 1)

    return breach


def _settings(steps: int) -> Settings:
    """Return the settings that the package ships for this attack, with our number of steps."""
    return Settings(
        type="invertinggradients",
        attack_type="optimization",
        label_strategy=None,
        text_strategy="run-embedding",
        objective=Settings(type="cosine-similarity", scale=1.0, task_regularization=0.0),
        restarts=Settings(num_trials=1, scoring="cosine-similarity"),
        init="randn",
        normalize_gradients=False,
        optim=Settings(
            optimizer="adam",
            signed="hard",
            step_size=0.1,
            boxed=True,
            max_iterations=steps,
            step_size_decay="step-lr",
            langevin_noise=0.0,
            warmup=0,
            grad_clip=None,
            callback=steps,
        ),
        augmentations=None,
        differentiable_augmentations=False,
        regularization=Settings(total_variation=Settings(scale=0.2, inner_exp=1, outer_exp=1)),
        impl=Settings(dtype="float", mixed_precision=False, JIT=None),
    )


def _messages(seen: Any, labels: Any) -> tuple[list[Any], list[Any]]:
    """Return what a server has sent and received, in the package's form."""
    channels = seen.shape[0]
    meta = Settings(
        shape=list(seen.shape),
        classes=seen.classes,
        modality="vision",
        mean=[0.0] * channels,
        std=[1.0] * channels,
    )
    payload = {
        "parameters": [p.detach() for p in seen.model.parameters()],
        "buffers": [b.detach() for b in seen.model.buffers()],
        "metadata": meta,
    }
    shared = {
        "gradients": list(seen.update),
        "buffers": None,
        "metadata": {
            "num_data_points": seen.records,
            "labels": labels,
            "local_hyperparams": None,
            "data_key": "inputs",
        },
    }
    return [payload], [shared]
