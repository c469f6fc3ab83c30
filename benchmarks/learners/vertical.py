"""Vertical learning: matching ids beside openmined-psi, and a tree by a cipher beside XGBoost.

Matching is CPU time per id of both sides together; trust is the same (semi-honest, two parties)
but for the helper, who must work with no owner. Trees: CPU time of one tree of SecureBoost, all
parties as threads of one process, beside XGBoost in the clear on the joined rows, which nobody has.
FATE's SecureBoost took 81 s per tree at 10,000 × 20, 32 bins and depth 4 on the machine of an
earlier study: it is not run here.
"""

from functools import partial
from pathlib import Path
from time import process_time

import numpy as np
from bench import Case, InlinePeer, VenvPeer
from sklearn.datasets import make_classification
from xgboost import XGBClassifier

from tacit.crypto import Matcher
from tacit.crypto.cipher import Scheme
from tacit.crypto.matching import make_tags
from tacit.learners import GradientBoostingClassifier
from tacit.learners.cipher.boosting import Boosting
from tacit.learners.cipher.secureboost import boost
from tacit.party import Meeting, Session, run_threads

PEERS = Path(__file__).parents[1] / "peers"


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` takes fewer ids and rows."""
    return [*_matching(1_000 if quick else 5_000), *_trees(1_000 if quick else 10_000, quick)]


def _matching(count: int) -> list[Case]:
    peer = VenvPeer(
        name="openmined-psi",
        requirements=("openmined-psi==2.0.6",),
        script=PEERS / "psi_peer.py",
        arguments=(str(count),),
    )
    entry = partial(Case, metric="CPU time per id", unit="µs", peers=(peer,))
    return [
        entry(name=f"match {count:,} ids", ours=partial(_matched, count), goal=1.0),
        entry(name=f"match {count:,} ids, by a helper", ours=partial(_helped, count), goal=0.02),
    ]


def _ids(count: int) -> tuple[list[str], list[str]]:
    return [f"id {at}" for at in range(count)], [f"id {at + count // 2}" for at in range(count)]


def _matched(count: int) -> float:
    mine, theirs = _ids(count)
    begun = process_time()
    one, two = Matcher(mine), Matcher(theirs)
    first, second = two.raise_points(one.blind()), one.raise_points(two.blind())
    one.match(first, [second])
    two.match(second, [first])
    return 1e6 * (process_time() - begun) / (2 * count)


def _helped(count: int) -> float:
    begun = process_time()
    tags = [make_tags(ids, bytes(32)) for ids in _ids(count)]
    listed = [[row.tobytes() for row in one] for one in tags]
    common = sorted(set(listed[0]) & set(listed[1]))
    for rows in listed:
        places = {tag: at for at, tag in enumerate(rows)}
        _ = [places[tag] for tag in common]
    return 1e6 * (process_time() - begun) / (2 * count)


def _trees(rows: int, quick: bool) -> list[Case]:
    x, y = make_classification(rows, 20, n_informative=10, random_state=0)
    plain = XGBClassifier(n_estimators=1, max_depth=4, max_bin=32, tree_method="hist", n_jobs=1)
    peer = InlinePeer("XGBoost, in the clear", partial(_plain, plain, x, y))
    schemes: tuple[Scheme, ...] = ("bfv",) if quick else ("bfv", "paillier")
    return [
        Case(
            name=f"SecureBoost, {scheme}, {rows:,} × 20",
            metric="CPU time of a tree",
            unit="s",
            ours=partial(_boosted, scheme, x, y.astype(float)),
            peers=(peer,),
        )
        for scheme in schemes
    ]


def _plain(plain: XGBClassifier, x: np.ndarray, y: np.ndarray) -> float:
    begun = process_time()
    plain.fit(x, y)
    return process_time() - begun


def _boosted(scheme: Scheme, x: np.ndarray, y: np.ndarray) -> float:
    task = Boosting(
        active="bank",
        passive=("shop",),
        cipher=scheme,
        learner=GradientBoostingClassifier(n_estimators=1),
    )

    def party(session: Session) -> None:
        is_active = session.me == task.active
        part = x[:, :10] if is_active else x[:, 10:]
        boost(session, task, np.ascontiguousarray(part), y if is_active else None)

    begun = process_time()
    run_threads(
        dict.fromkeys(("bank", "shop"), party),
        Meeting(parties=("bank", "shop"), job_digest=bytes(32)),
    )
    return process_time() - begun
