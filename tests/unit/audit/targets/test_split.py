"""Split models under audit: a bottom for every owner, and columns that the label owner keeps."""

import pytest
import torch

from tacit.audit.targets import SplitTrainer, split_target
from tacit.split import Compression, CutSpec, NetworkSpec, SplitData, SplitSpec, TrainingPace

ROWS, WIDTH = 120, 16


def make_trainer(*others):
    spec = SplitSpec(
        data=SplitData(features=("clinic", "bank", *others), labels="lab", classes=3),
        model=NetworkSpec(width=WIDTH),
        split=CutSpec(compress=Compression(kind="randtopk", k=3, alpha=0.1)),
        train=TrainingPace(epochs=2, batch=32),
    )
    return SplitTrainer(spec=spec)


@pytest.fixture
def rows():
    draw = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, 12, generator=draw), torch.arange(ROWS) % 3


def test_several_feature_owners_have_a_bottom_model_each(rows):
    halves = make_trainer().train(*rows, seed=0)
    assert len(halves.bottom.parts) == 2
    sent = halves.codec.apply(halves.bottom(rows[0]), is_training=False)
    # Three values of every owner, not three of all.
    assert ((sent.view(ROWS, 2, WIDTH) != 0).sum(2) == 3).all()


def test_what_the_label_owner_computes_itself_is_neither_compressed_nor_attacked(rows):
    trainer = make_trainer("lab")
    halves = trainer.train(*rows, seed=0)
    shown, own = halves.divide(halves.bottom(rows[0]))
    assert (shown.shape[1], own.shape[1]) == (2 * WIDTH, WIDTH)
    assert halves.top.in_features == 3 * WIDTH
    target = split_target(trainer, *rows)
    assert target.model.log_probs(rows[0]).shape == (ROWS, 3)
    assert {one.threat.name for one in target.findings} == {
        *("labels, gradients", "labels, bottom model", "inputs, cut layer"),
    }
