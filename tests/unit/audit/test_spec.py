"""What is said about an audit: every key of a job has a way in from Python, or a reason why not."""

import inspect
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import pytest

from tacit.audit import Fleet, TorchTrainer, audit_membership, membership
from tacit.audit.language import audit_language
from tacit.audit.membership import Effort
from tacit.audit.privacy.claims import claim_of_training, try_training
from tacit.audit.spec import AuditLlmSpec, AuditPrivacy, AuditSpec, Canaries, Excerpts, LlmEffort
from tacit.audit.targets import Build, DpTrainer
from tacit.dp import DpSgd
from tacit.spec import strip_type

HANDED_OVER = "what a program has in its hands: rows, a model, lines"
CHOSEN = "which rows are members, as a program says by what it hands over"

# The calls that take a table as it is, or its keys by their names; and keys that none takes.
WAYS = {
    AuditSpec: (
        {
            "model": (Build,),
            "train": (TorchTrainer,),
            "privacy": (DpSgd, claim_of_training),
            "audit": (Effort, Fleet),
        },
        {
            **dict.fromkeys(
                ("data.set", "data.file", "data.members", "data.strangers"), HANDED_OVER
            ),
            **dict.fromkeys(("model.file", "model.code"), HANDED_OVER),
            **dict.fromkeys(("data.label", "data.member", "data.test_share", "data.rows"), CHOSEN),
        },
    ),
    AuditLlmSpec: (
        {"texts": (Excerpts,), "canaries": (Canaries,), "audit": (LlmEffort,)},
        {**dict.fromkeys(("model.path", "texts.file"), HANDED_OVER), "model.second": HANDED_OVER},
    ),
}


@pytest.mark.parametrize("spec", WAYS, ids=lambda spec: spec.__name__)
def test_every_key_has_a_way_in_from_python_or_a_reason_why_not(spec):
    calls, reasons = WAYS[spec]
    keys = set()
    for table, hint in get_type_hints(spec).items():
        record = strip_type(hint)
        assert is_dataclass(record)
        keys |= {f"{table}.{one.name}" for one in fields(record)}
    ways = {
        f"{table}.{name}"
        for table, takers in calls.items()
        for one in takers
        for name in inspect.signature(one).parameters
    }
    assert {key for key in keys if key not in ways} == set(reasons)


@pytest.mark.parametrize(
    ("call", "name", "record"),
    [
        (audit_membership, "effort", Effort),
        (try_training, "effort", Effort),
        (try_training, "settings", DpSgd),
        (DpTrainer, "settings", DpSgd),
        (audit_language, "texts", Excerpts),
        (audit_language, "canaries", Canaries),
        (audit_language, "effort", LlmEffort),
    ],
)
def test_calls_take_the_records_that_a_job_file_is_read_into(call, name, record):
    assert strip_type(get_type_hints(call)[name]) is record


def test_the_tables_of_a_job_are_what_calls_take():
    assert issubclass(AuditPrivacy, DpSgd)
    assert issubclass(TorchTrainer, get_type_hints(AuditSpec)["train"])
    short = set(inspect.signature(membership).parameters)
    assert short & {"threats", "shadows", "seed", "workers"} <= {one.name for one in fields(Effort)}
