"""A passive owner of SecureBoost: adds up ciphertexts by node, column and bin."""

from collections.abc import Sequence

import numpy as np
import torch

from tacit.crypto.cipher import Ciphertext, Numbers
from tacit.errors import PartyError
from tacit.learners.cipher.exchange import Kept, recv_key, recv_sealed, send_sealed
from tacit.learners.cipher.secureboost.task import Boosting, asked_nodes, note_leak
from tacit.party import Session
from tacit.ring import Prg


class Passive:
    """An owner of columns: adds up ciphertexts by node, column and bin."""

    def __init__(self, session: Session, task: Boosting, places: Numbers) -> None:
        self._session, self._task, self._places = session, task, places
        self._draw = Prg.from_os().bytes
        self._key = recv_key(session, task.active, task.cipher)

    def run(self, start: int = 0, kept: Kept | None = None) -> None:
        """Help to grow all trees, after those of the first steps."""
        task = self._task
        with self._session.progress.stage("boost", task.n_estimators) as advance:
            for step in range(start, task.n_estimators):
                for _ in range(task.width):
                    self._grow()
                if kept is not None:
                    kept.save(step + 1, {})
                advance(step + 1)

    def _grow(self) -> None:
        task, session, rows = self._task, self._session, len(self._places)
        sealed = recv_sealed(session, task.active, "gradients", self._key, task.layout(rows))
        for level in range(task.max_depth + 1):
            node = session.recv(task.active, "nodes", (rows,)).numpy()
            if level == task.max_depth:
                return
            if node.min() < -1 or node.max() >= 2**level:
                raise PartyError(task.active, "sent nodes that are not in the tree")
            note_leak(session, (session.me,), "which rows lie in which node of every tree", rows)
            asked = asked_nodes(node, level)
            self._send_sums(sealed, node, asked)
            pairs = recv_pairs(session, task, "splits", 2**level, self._places.shape[1])
            mine = np.flatnonzero(pairs[:, 0] >= 0)
            # A bit for every row, also of nodes that others split: sizes tell nothing.
            left, chosen = np.zeros(rows, dtype=bool), np.flatnonzero(np.isin(node, mine))
            column, edge = pairs[node[chosen]].T
            left[chosen] = self._places[chosen, column] <= edge
            session.send(task.active, "left", torch.from_numpy(np.packbits(left)))
            if len(mine):
                note_leak(
                    session,
                    (session.me,),
                    "which of its columns and bins a tree splits on",
                    2 * len(mine),
                )

    def _send_sums(self, sealed: Ciphertext, node: Numbers, asked: Numbers) -> None:
        """Add up by who lies in which bin, column after column."""
        task, key, columns = self._task, self._key, self._places.shape[1]
        order = np.full(2**task.max_depth + 1, -1)
        order[asked] = np.arange(len(asked))
        at = order[node]  # a node that is not asked for, and −1, have no place
        for column in range(columns):
            places = np.where(at < 0, -1, at * task.max_bins + self._places[:, column])
            found = key.release(key.gather(places, len(asked) * task.max_bins, sealed), self._draw)
            send_sealed(self._session, task.active, f"sums {column}", key, found)


def send_pairs(session: Session, to: str, tag: str, pairs: Sequence[tuple[int, int]]) -> None:
    """Send columns and edges of the receiver's, −1 for none."""
    session.send(to, tag, torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2))


def recv_pairs(session: Session, task: Boosting, tag: str, count: int, columns: int) -> Numbers:
    """Receive columns and edges of mine, −1 for none."""
    pairs = session.recv(task.active, tag, (count, 2)).numpy()
    limits = np.array([columns, task.max_bins - 1])
    if np.any(pairs < -1) or np.any(pairs >= limits):
        raise PartyError(task.active, "names columns or edges that are not there")
    return pairs
