"""What a client of a service makes of its answers."""

import numpy as np
import pytest
import torch

from tacit.data import load_file
from tacit.inference.answers import AnsweredRows


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,y\n0,0\n1,1\n2,1\n3,0\n")
    return load_file(path, label="y")


def measured(values, labels):
    """By name, what answers are worth whose owner reveals classes alone."""
    found = AnsweredRows(values=values, reveal="class", labels=labels).measure()
    return {one.name: one.value for one in found}


def test_answers_are_measured_as_far_as_they_tell(rows):
    by_class = measured(torch.tensor([0.0, 1, 1, 1]), rows.labels)
    assert by_class == pytest.approx({"accuracy": 0.75, "most frequent class": 0.5, "F1": 0.8})
    scores = torch.tensor([[-2.0], [3.0], [1.0], [2.0]])
    by_score = measured(scores, rows.labels)
    assert set(by_score) == {
        *("accuracy", "most frequent class", "F1", "AUC", "KS", "calibration error")
    }
    # Of four pairs of a yes and a no, one is in the wrong order.
    assert by_score["AUC"] == pytest.approx(0.75)
    assert by_score["accuracy"] == pytest.approx(float(np.mean([1, 1, 1, 0])))
