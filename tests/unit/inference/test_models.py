from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit.data import load_dataset, split_dataset
from tacit.data.dataset import NO_LABELS
from tacit.errors import DataError
from tacit.inference import (
    load_logistic,
    predict_plain,
    save_logistic,
    scaled_features,
    train_logistic,
)


def breast_cancer(part):
    return split_dataset(load_dataset("breast-cancer", ()), part=part, seed=0)


def test_a_trained_model_predicts_unseen_rows_well():
    weights = train_logistic(breast_cancer("train"))
    unseen = breast_cancer("test")
    answers = predict_plain(scaled_features(unseen), weights, reveal="class").numpy()
    assert (answers == unseen.labels).mean() > 0.94


def test_a_model_of_more_than_two_classes_is_refused():
    with pytest.raises(DataError, match="0 and 1"):
        train_logistic(load_dataset("iris", ()))


def test_rows_without_labels_cannot_be_trained_on():
    unlabelled = replace(breast_cancer("train"), labels=NO_LABELS, label_names=())
    with pytest.raises(DataError, match="wants labelled rows"):
        train_logistic(unlabelled)


def test_a_model_survives_its_file(tmp_path):
    weights = {"weight": torch.tensor([[1.5], [-2.0]]), "bias": torch.tensor([0.25])}
    save_logistic(tmp_path / "model.npz", weights)
    read = load_logistic(tmp_path / "model.npz")
    assert all(torch.equal(read[name], weights[name].double()) for name in weights)


@pytest.mark.parametrize(
    "arrays",
    [
        {"weight": np.ones(3)},
        {"weight": np.array(["a"]), "bias": np.zeros(1)},
        {"weight": np.array([np.nan]), "bias": np.zeros(1)},
        {"weight": np.array([object()], dtype=object), "bias": np.zeros(1)},
    ],
)
def test_a_broken_model_file_is_refused_with_its_name(tmp_path, arrays):
    np.savez(tmp_path / "model.npz", **arrays)
    with pytest.raises(DataError, match=r"model\.npz"):
        load_logistic(tmp_path / "model.npz")


@pytest.mark.parametrize(
    ("weight", "bias"), [((3,), (2,)), ((3, 2), (1,)), ((0,), (1,)), ((), ()), ((3,), (0,))]
)
def test_wrong_shapes_are_named_beside_those_wanted(tmp_path, weight, bias):
    np.savez(tmp_path / "model.npz", weight=np.ones(weight), bias=np.ones(bias))
    with pytest.raises(DataError, match=r"model\.npz") as caught:
        load_logistic(tmp_path / "model.npz")
    assert "of shape (features,) and 'bias' of shape (1,)" in str(caught.value)
    assert str(caught.value).endswith(f"got {weight} and {bias}")


@pytest.mark.parametrize(("weight", "bias"), [((3,), ()), ((3, 1), (1,)), ((1, 3), (1, 1))])
def test_a_row_a_column_or_a_plain_list_of_weights_will_do(tmp_path, weight, bias):
    np.savez(tmp_path / "model.npz", weight=np.ones(weight), bias=np.ones(bias))
    read = load_logistic(tmp_path / "model.npz")
    assert (read["weight"].shape, read["bias"].shape) == ((3, 1), (1,))


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04broken"])
def test_a_file_that_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "model.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"model\.npz"):
        load_logistic(tmp_path / "model.npz")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        load_logistic(tmp_path / "model.npz")
