"""The record of a split training: one for job files and for Python."""

import pytest
import torch

from tacit.errors import ConfigError
from tacit.jobs.fields import walk
from tacit.split import (
    Compression,
    CutSpec,
    Defence,
    NetworkSpec,
    SplitData,
    SplitSpec,
    TrainingPace,
    fit,
)

NOT_FROM_PYTHON = {
    "data.set": "a program hands over rows",
    "data.files.NAME": "a program hands over rows",
    "data.label": "labels are handed over beside the rows",
    "data.match": "rows are handed over in one order",
    "data.rows": "a program hands over as many as it wants",
    "serve.models": "the trained model is there: `predict`",
}
"""Keys of a job that no call in Python takes, and why."""

WHOLE = SplitSpec(
    data=SplitData(features=("clinic", "bank"), labels="lab", classes=2, test_share=0.25),
    model=NetworkSpec(width=6, hidden=4),
    split=CutSpec(
        compress=Compression(kind="randtopk-coded", k=2, alpha=0.2, bits=4, gradient_bits=6),
        defend=Defence(kind="label-dp", epsilon=3.0),
        also_defend=(Defence(kind="activation-noise", scale=0.1),),
    ),
    train=TrainingPace(epochs=1, batch=8, micro_batches=2, rate=0.02, class_weights=(1.0, 2.0)),
)


def train(model, **how):
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, 3, generator=draw), torch.arange(24) % 2
    return fit(model, features={"clinic": x, "bank": x}, labels=y, label_owner="lab", **how)


def test_the_call_makes_the_record_of_a_job_file():
    found = train(WHOLE.model, test_share=0.25, split=WHOLE.split, train=WHOLE.train)
    assert found.spec == WHOLE
    assert found.predict({name: torch.zeros(3, 3) for name in ("clinic", "bank")}).shape == (3,)


def test_short_words_stand_in_place_of_those_of_the_tables():
    compress = Compression(kind="topk", k=3)
    found = train(
        NetworkSpec(width=6),
        split=WHOLE.split,
        train=WHOLE.train,
        compress=compress,
        defend=Defence(kind="gradient-norm"),
        epochs=2,
        batch=12,
        rate=0.05,
    )
    assert found.spec.split.compress == compress
    assert [one.kind for one in found.spec.defences] == ["gradient-norm", "activation-noise"]
    pace = found.spec.train
    assert (pace.epochs, pace.batch, pace.rate, pace.micro_batches) == (2, 12, 0.05, 2)


def test_every_key_of_a_job_has_a_way_in_from_python_or_a_reason():
    from_python = {
        *("data.features", "data.labels", "data.classes", "data.test_share"),
        *(key for key, _ in walk(SplitSpec) if key.startswith(("model.", "split.", "train."))),
    }
    leaves = {key for key, one in walk(SplitSpec) if one.form not in ("table", "tables")}
    named = {key if key != "data.files" else "data.files.NAME" for key in leaves}
    assert named - from_python == NOT_FROM_PYTHON.keys()


def test_types_and_ranges_of_a_record_made_in_python_are_those_of_a_file():
    with pytest.raises(ConfigError, match=r"split\.fit: train\.epochs: wanted a whole number"):
        train(NetworkSpec(width=6), epochs=2.5)
    with pytest.raises(ConfigError, match=r"model\.width: wanted a whole number of at least 1"):
        train(NetworkSpec(width=0))


def test_the_digest_covers_what_parties_share_and_not_where_files_lie(tmp_path):
    data = {"features": ("clinic",), "labels": "lab", "classes": 2}
    here, there = (
        SplitSpec(data=SplitData(**data, files={"lab": path})) for path in (tmp_path, "y.csv")
    )
    assert here.digest() == there.digest()
    assert here.digest() != here.with_classes(3).digest()
