import sys

import numpy as np
import pytest

from support.machine import FakeRay
from tacit.errors import ConfigError
from tacit.verify import Budget, Domain, Inquiry, verify_each, verify_many, verify_on_ray
from tacit.verify.batch import _answer_chunk
from tacit.verify.models.load import store_ensemble

WIDE = Domain(-3.0, 3.0)


@pytest.fixture(scope="module")
def asked(brute):
    """A model, rows, and a question whose answers differ."""
    rng = np.random.default_rng(4)
    model = brute.random_ensemble(rng, scores=3, most=30)
    rows = np.array([brute.random_input(rng, model.n_features) for _ in range(50)])
    return model, rows, Inquiry(0.4, domain=WIDE, budget=Budget(seconds=10.0))


def told(answers):
    return [type(one.verdict).__name__ for one in answers]


def test_threads_answer_in_the_order_of_the_rows(asked):
    model, rows, inquiry = asked
    alone = told(verify_each(model, rows, inquiry))
    assert len(set(alone)) == 2
    assert told(verify_each(model, rows, inquiry, workers=4)) == alone
    many = verify_many(model, rows, 0.4, domain=WIDE, workers=4)
    assert [type(one).__name__ for one in many] == alone


def test_answers_come_as_they_are_ready(asked):
    model, rows, inquiry = asked
    first = next(iter(verify_each(model, np.vstack([rows, np.full_like(rows, 9.0)]), inquiry)))
    assert first.seconds >= 0


def test_a_machine_of_a_cluster_answers_from_the_stored_model(asked):
    model, rows, inquiry = asked
    frozen = rows.copy()
    frozen.flags.writeable = False  # as Ray hands arrays over
    answers = _answer_chunk(store_ensemble(model), frozen, inquiry)
    assert told(answers) == told(verify_each(model, rows, inquiry))


@pytest.mark.slow
@pytest.mark.usefixtures("ray_tidied")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_ray_cluster_answers_like_this_machine(asked):
    pytest.importorskip("ray", reason="ray is not installed")
    model, rows, inquiry = asked
    answers = verify_on_ray(model, rows, inquiry, address="local")
    assert told(answers) == told(verify_each(model, rows, inquiry))


def test_a_cluster_answers_in_the_order_of_the_rows(asked, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    model, rows, inquiry = asked
    answers = verify_on_ray(model, rows, inquiry, address="local")
    assert told(answers) == told(verify_each(model, rows, inquiry))


def test_no_workers_are_refused(asked):
    model, rows, inquiry = asked
    with pytest.raises(ConfigError, match="workers"):
        next(verify_each(model, rows, inquiry, workers=0))
