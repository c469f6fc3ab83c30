"""What every verifier must hold: right answers, replaying counterexamples, honest refusals."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba", reason="tacit-ml[verify] is not installed")
pytest.importorskip("z3", reason="tacit-ml[verify] is not installed")

from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier

from tacit.errors import ConfigError, DataError
from tacit.verify import (
    VERIFIERS,
    Counterexample,
    Domain,
    Robust,
    closest,
    from_sklearn,
)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).random((300, 4))


@pytest.fixture(scope="module")
def classifier(rows):
    target = (rows[:, 0] + rows[:, 1] > 1).astype(int) + (rows[:, 2] > 0.7)
    return from_sklearn(RandomForestClassifier(8, max_depth=3, random_state=0).fit(rows, target))


@pytest.fixture(scope="module")
def regression(rows):
    target = rows[:, 0] * rows[:, 1] + rows[:, 2]
    model = GradientBoostingRegressor(n_estimators=6, max_depth=2, random_state=0)
    return from_sklearn(model.fit(rows, target))


@pytest.mark.parametrize("name", VERIFIERS)
def test_the_answer_turns_exactly_at_the_closest_counterexample(name, classifier, rows):
    for row in rows[:4]:
        eps = closest(classifier, row).eps
        before = VERIFIERS[name](classifier, row, np.nextafter(eps, 0.0))
        assert isinstance(before, Robust)
        assert isinstance(VERIFIERS[name](classifier, row, eps), Counterexample)


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_counterexample_lies_in_its_box_and_changes_the_prediction(name, classifier, rows):
    found = [VERIFIERS[name](classifier, row, 0.2) for row in rows[:10]]
    found = [answer for answer in found if isinstance(answer, Counterexample)]
    assert found
    for answer in found:
        assert (answer.box.low <= answer.x).all()
        assert (answer.x <= answer.box.high).all()
        assert classifier.predict(answer.x)[0] == answer.changed != answer.prediction


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_regression_is_bounded_by_rho(name, regression, rows):
    kinds = set()
    for row in rows[:6]:
        for rho in (0.0, 0.1, 10.0):
            answer = VERIFIERS[name](regression, row, 0.05, rho=rho)
            kinds.add((rho, type(answer)))
            if isinstance(answer, Counterexample):
                assert abs(answer.changed - answer.prediction) > rho
    assert (10.0, Robust) in kinds
    assert (0.0, Counterexample) in kinds
    assert (10.0, Counterexample) not in kinds


@pytest.mark.parametrize("name", VERIFIERS)
def test_the_domain_is_respected(name, classifier, rows):
    answer = VERIFIERS[name](classifier, rows[0], np.inf, domain=Domain(0.0, 1.0))
    assert isinstance(answer, Counterexample)
    assert ((answer.x >= 0.0) & (answer.x <= 1.0)).all()


@pytest.mark.parametrize("name", VERIFIERS)
def test_what_makes_no_sense_is_refused(name, classifier, rows):
    with pytest.raises(DataError, match="missing"):
        VERIFIERS[name](replace(classifier, takes_missing=False), [np.nan, 0.0, 0.0, 0.0], 0.1)
    with pytest.raises(ConfigError, match="eps"):
        VERIFIERS[name](classifier, rows[0], -1.0)
    with pytest.raises(ConfigError, match="rho"):
        VERIFIERS[name](classifier, rows[0], 0.1, rho=1.0)


def test_all_verifiers_agree(classifier, regression, rows):
    for row in rows[10:18]:
        kinds = {type(verify(classifier, row, 0.05)) for verify in VERIFIERS.values()}
        assert len(kinds) == 1
        kinds = {type(verify(regression, row, 0.05, rho=0.1)) for verify in VERIFIERS.values()}
        assert len(kinds) == 1
