"""Classes that no row has are never an answer."""

import numpy as np
import pytest
from sklearn import naive_bayes

from tacit.learners import CategoricalNB, GaussianNB, KNeighbors, Local, LogisticRegression

COINS = np.random.default_rng(5)
HIGH = COINS.integers(0, 2, 60)
NUMBERS = 0.5 * COINS.normal(size=(60, 3)) + HIGH[:, None]
CATEGORIES = np.stack([np.where(HIGH, 2, COINS.integers(0, 2, 60)) for _ in range(12)], 1)
# A class of no rows has a mean of 0 and takes every category alike: it is the nearest to these.
NEAR, MIXED = np.zeros((4, 3)), np.repeat([[2] * 6 + [0] * 6], 4, axis=0)
KINDS = {
    "bayes": (GaussianNB, NUMBERS, NEAR, naive_bayes.GaussianNB),
    "categories": (
        lambda: CategoricalNB(3),
        CATEGORIES,
        MIXED,
        lambda: naive_bayes.CategoricalNB(),
    ),
    "neighbours": (lambda: KNeighbors(3), NUMBERS, NEAR, None),
    "linear": (lambda: LogisticRegression(max_iter=10), NUMBERS, NEAR, None),
}


@pytest.mark.parametrize("labels", [(0, 9), (1, 2), (3, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_class_without_rows_is_no_answer(kind, labels):
    make, x, others, plain = KINDS[kind]
    y = np.array(labels)[HIGH]
    asked = np.concatenate((x, others))
    whole = np.concatenate((y, np.full(4, labels[0])))
    with Local("bank", "shop") as parties:
        data = parties.rows({"bank": (x[:30], y[:30]), "shop": (x[30:], y[30:])}, classes=range(10))
        model = make().fit(data, parties)
        halves = {"bank": (asked[:30], whole[:30]), "shop": (asked[30:], whole[30:])}
        answers = model.predict(parties.rows(halves, classes=range(10)))
    assert set(answers.tolist()) <= set(labels)
    if plain is not None:
        assert (answers == plain().fit(x, y).predict(asked)).mean() > 0.98
