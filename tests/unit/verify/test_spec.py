"""What is said about a verification: every key has a way in from Python, or a reason why not."""

import inspect
from dataclasses import fields
from typing import get_type_hints

from tacit.verify import (
    Budget,
    Findings,
    robust_features,
    verified_accuracy,
    verify_many,
    verify_on_ray,
)
from tacit.verify.spec import VerifySpec

OTHERWISE = {
    "model.file": "the model itself",
    "model.beside": "a call for each model; `measure_size` counts what it found",
    "data.file": "the rows themselves",
    "data.label": "the labels themselves: `verified_accuracy` takes the classes",
    "data.rows": "as many rows as are handed over",
    "verify.claim": "a program compares `Findings.verified_share` itself",
    "verify.importance": "a call of `robust_features` for each row",
    "verify.ray": "`verify_on_ray`, by its `address`",
}


def test_every_key_has_a_way_in_from_python_or_a_reason_why_not():
    keys = {
        f"{table}.{one.name}"
        for table, record in get_type_hints(VerifySpec).items()
        for one in fields(record)
    }
    taken = {
        name
        for call in (verify_many, Budget, Findings)
        for name in inspect.signature(call).parameters
    }
    assert {key for key in keys if key.split(".")[1] not in taken} | {"data.rows"} == set(OTHERWISE)
    assert "address" in inspect.signature(verify_on_ray).parameters
    assert "classes" in inspect.signature(verified_accuracy).parameters
    assert "budget" in inspect.signature(robust_features).parameters
