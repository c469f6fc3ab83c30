"""Attacks on vertical learning by a cipher, from what its published protocols show."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


def labels_from_membership(nodes: Numbers, known: Mapping[int, int], *, near: int = 5) -> Numbers:
    """Guess labels of all rows as a passive owner of SecureBoost, who sees which node each lies in.

    Args:
        nodes: (rows, trees) the last node of every row in every tree.
        known: labels of a few rows.
        near: how many known rows vote, those that share most nodes first.

    Returns:
        A guessed label for every row.
    """
    if not known:
        raise InputError("the attack wants a few rows whose labels are known")
    rows = np.array(list(known))
    labels = np.array(list(known.values()))
    shared = (nodes[:, None, :] == nodes[None, rows, :]).sum(axis=2)
    order = np.argsort(-shared, axis=1, kind="stable")[:, :near]
    votes = np.stack(
        [(labels[order] == label).sum(axis=1) for label in range(int(labels.max()) + 1)], axis=1
    )
    found: Numbers = votes.argmax(axis=1)
    return found


def bins_from_sums(views: Sequence[tuple[Numbers, Numbers, Numbers]]) -> Numbers:
    """Guess bins of a passive owner's column as the active party, from sums by node and bin.

    The active party knows every row's gradient. Every sum is a linear equation for who lies in the
    bin; trees and nodes bring new ones until there are as many as rows.

    Args:
        views: of every level of every tree, whole-number gradients and Hessians (rows, 2), the node
            of every row, and what was decrypted of one column, (nodes, bins, 2).

    Returns:
        The likeliest bin of every row, by least squares.
    """
    if not views:
        raise InputError("the attack wants the sums of one tree at least")
    left, right = [], []
    for gradients, node, sums in views:
        for place, histogram in enumerate(sums):
            for which in range(2):
                left.append(np.where(node == place, gradients[:, which], 0))
                right.append(histogram[:, which])
    known = np.array(left, dtype=np.float64)
    scale = np.abs(known).max()
    weights = np.linalg.lstsq(known / scale, np.array(right, dtype=np.float64) / scale)[0]
    found: Numbers = weights.argmax(axis=1)
    return found
