"""Where a new job begins: what each kind is for, and an example of it that runs."""

import tomllib
from functools import cache
from pathlib import Path

from tacit.cli.commands.examples import list_examples

WANTS = {
    "infer": ("Predict", "One party has rows, another a model: only the answers come out."),
    "train": ("Train", "Owners of rows or columns train a network that none of them sees."),
    "fit": ("Learners", "k-means to gradient boosting on rows or columns of several owners."),
    "federated": ("Federated learning", "Clients train on their own rows; sums are masked."),
    "split": ("Split learning", "A model is cut between owners of features and of labels."),
    "text": ("Text", "A language model and texts of different owners."),
    "verify": ("Verify", "Which rows keep their class under a tree ensemble, proved."),
    "audit": ("Audit", "Attacks on what was trained, with intervals, beside what was claimed."),
    "audit-llm": ("Audit a language model", "What it says by heart and what its layers show."),
    "serve": ("Serve", "Servers with shares of a model answer clients."),
}


_FIRST = frozenset(
    {"predict-breast-cancer", "train-digits", "fl-digits", "fit-columns", "split-private"}
)


@cache
def list_starts(kind: str) -> dict[str, Path]:
    """List the examples of a kind by name; those that need nothing that is not here come first."""
    found = {}
    for path in list_examples().values():
        if path.suffix == ".toml":
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
            if raw.get("job", {}).get("kind") == kind:
                found[path.stem] = path
    return dict(sorted(found.items(), key=lambda item: item[0] not in _FIRST))


def first_tables(kind: str, example: str, folder: Path) -> dict[str, object]:
    """Return the tables that a form begins with: an example's, with a result in our folder."""
    examples = list_starts(kind)
    path = examples.get(example) or next(iter(examples.values()), None)
    if path is None:
        return {"job": {"name": kind, "kind": kind, "out": str(folder / kind)}}
    raw = tomllib.loads(path.read_text(encoding="utf-8"))
    name = raw["job"]["name"]
    return {**raw, "job": {**raw["job"], "out": str(folder / name)}}
