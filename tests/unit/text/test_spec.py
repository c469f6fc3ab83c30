"""The record of a private tuning: one for job files and for Python."""

from dataclasses import fields

import pytest

from tacit.errors import ConfigError
from tacit.jobs.fields import walk
from tacit.spec import check_record
from tacit.text import Ballot, TextPlan
from tacit.text.spec import TextData as Data
from tacit.text.spec import TextDecode, TextModel, TextSpec, TextTrain, Tuning

NOT_IN_A_PLAN = {
    "data.texts": "`mark_corpus` takes texts",
    "data.public": "`tune` takes texts that anybody may know",
    "data.terms": "`measure_scientificity` takes terms",
    "data.test_share": "a program holds texts back itself",
    "model.path": "`fine_tune` takes a module",
    "model.layers": "`tiny_model` makes a new one",
    "model.width": "`tiny_model` makes a new one",
    "model.vocabulary": "`train_tokenizer` takes a size",
    "policy.patterns": "`mark_corpus` takes a policy, `by_pattern`",
    "policy.terms": "`mark_corpus` takes a policy, `by_terms`",
    "train.public_epochs": "`tune` takes texts that anybody may know",
    "train.seed": "`fine_tune` takes the generator of the order",
    "train.most_epsilon": "`enter_book` takes a `Book` with its limit",
    "decode.conversation": "`BudgetedWriter` takes a `Budget`",
    "decode.total": "`enter_book` and `Budget` take it",
    **{
        f"canaries.{name}": "an audit of one's own plants what it looks for"
        for name in ("count", "copies", "signs", "forms")
    },
}
"""Keys of a job that `TextPlan` has not, and what takes them in Python instead, if anything."""


def test_every_key_of_a_job_is_one_of_a_plan_or_has_another_way_in():
    leaves = {key for key, one in walk(TextSpec) if one.form not in ("table", "tables")}
    plan = {one.name for one in fields(TextPlan)}
    taken = {f"train.{name}" for name in plan} | {"data.length"}
    taken |= {f"decode.{one.name}" for one in fields(Ballot)}
    assert leaves - taken == NOT_IN_A_PLAN.keys()


def test_the_words_of_a_job_file_are_those_of_python(tmp_path):
    train = TextTrain(method="vote", epochs=5, private_rate=0.01, clip=0.3, seed=4)
    decode = TextDecode(voters=4, clip=1.0, total=9.0)
    spec = TextSpec(
        data=Data(texts=tmp_path, length=64),
        model=TextModel(path=tmp_path),
        train=train,
        decode=decode,
    )
    plan = spec.plan()
    assert plan == TextPlan(
        method="vote", epochs=5, private_rate=0.01, clip=0.3, length=64, ballot=decode
    )
    assert (plan.ballot.voters, plan.ballot.event) == (4, Ballot(voters=4, clip=1.0).event)
    assert all(getattr(plan, one.name) == getattr(train, one.name) for one in fields(Tuning))
    assert check_record(spec, source="plan") == spec


def test_a_new_model_learns_faster_than_one_that_would_forget(tmp_path):
    data = Data(texts=tmp_path, public=tmp_path)
    new, given = (
        TextSpec(data=data, model=TextModel(path=path)).plan() for path in (None, tmp_path)
    )
    assert (new.course.rate, new.private.rate) == (3e-3, 3e-3)
    assert (given.course.rate, given.private.rate) == (2e-4, 1e-3)


def test_voters_need_adapters():
    with pytest.raises(ConfigError, match="wanted a rank above 0"):
        TextPlan(method="vote", rank=0)
