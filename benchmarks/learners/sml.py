"""Learners on shares beside sf-sml's on spu (semi2k): CPU seconds of one fit, all parties together.

Trust differs: here two owners and a dealer, nobody shows anything; there two parties whose
simulator also lets a trusted first party make triples. SML_SOURCES names sml's sources, which no
package index has; without it the peers are not measured.
"""

from functools import partial
from pathlib import Path
from time import process_time

from bench import Case, VenvPeer
from peers.sml_peer import rows as drawn
from sklearn.base import clone

from tacit import learners
from tacit.learners import Learner, Local

PEERS = Path(__file__).parents[1] / "peers"
COLUMNS = 20


def cases(quick: bool) -> list[Case]:
    """List the learners that both have, with the goals of this project."""
    count = 500 if quick else 10_000
    models: dict[str, tuple[Learner, float]] = {
        "kmeans": (learners.KMeans(5, max_iter=10, init="random"), 0.05),
        "bayes": (learners.GaussianNB(), 0.1),
        "pca": (learners.PCA(2), 0.2),
        "ridge": (learners.Ridge(), 0.1),
    }
    return [
        Case(
            name=f"{type(model).__name__}, {count:,} × {COLUMNS}",
            metric="CPU time of a fit",
            unit="s",
            ours=partial(_ours, model, count),
            peers=(
                VenvPeer(
                    name="spu",
                    requirements=("spu==0.9.5", "scikit-learn", "pandas"),
                    script=PEERS / "sml_peer.py",
                    arguments=(name, str(count), str(COLUMNS)),
                ),
            ),
            goal=goal,
        )
        for name, (model, goal) in models.items()
    ]


def _ours(model: Learner, count: int) -> float:
    """Fit once, with planning: the peer compiles as well."""
    x, classes = drawn(count, COLUMNS)
    is_ridge = isinstance(model, learners.Ridge)
    y = x[:, 0] - 0.5 * x[:, 1] if is_ridge else classes.astype(float)
    half = COLUMNS // 2
    with Local("bank", "shop") as parties:
        parts = {"bank": x[:, :half], "shop": (x[:, half:], y)}
        data = parties.columns(parts, is_classification=not is_ridge)
        begun = process_time()
        clone(model).fit(data, parties)
        return process_time() - begun
