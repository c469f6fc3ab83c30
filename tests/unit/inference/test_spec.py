"""What is said of private predictions: every key has a way in from Python, or a reason why not."""

import inspect
from dataclasses import fields
from typing import get_type_hints

import pytest

import tacit
from tacit import plugins
from tacit.errors import ConfigError
from tacit.inference import Crew
from tacit.inference.service.spec import ServeProtection, ServeSpec, ServiceTable
from tacit.inference.spec import InferData, InferModel, InferProtection, InferSpec
from tacit.mpc import registry

BY_NAME = {
    "data.owner": "client",
    "model.owner": "server",
    "protocol.dealer": "dealer",
    "protocol.kind": "protocol",
}
"""Names of parties are those of a crew; a word alone is the protocol."""
ROWS = "rows are handed over, divided and in their shape"
MODEL = "the model is handed over, a module, a function, an estimator or its state"
SHARED = "a model of shares is asked by a job or a service: `tacit.connect`"
OTHERWISE = {
    **{f"data.{key}": ROWS for key in ("set", "file", "label", "part", "test_share", "rows")},
    **{f"data.{key}": ROWS for key in ("shape", "prepare")},
    **{f"model.{key}": MODEL for key in ("kind", "train", "layers", "code", "inputs", "file")},
    "data.owners": SHARED,
    "model.shares": SHARED,
    "protocol.compute": SHARED,
    "model.bound": "how large weights are is told, coarsely, by their owner",
}


def keys(spec):
    tables = get_type_hints(spec).items()
    return {f"{table}.{one.name}" for table, record in tables for one in fields(record)}


def test_every_key_of_a_question_has_a_way_in_from_python_or_a_reason_why_not():
    calls = tacit.secure, Crew
    taken = {name for call in calls for name in inspect.signature(call).parameters}
    absent = {key for key in keys(InferSpec) if BY_NAME.get(key, key.split(".")[1]) not in taken}
    # The bound that `secure` takes is that of the rows.
    assert absent | {"model.bound"} == set(OTHERWISE)


def test_a_service_is_asked_from_python_and_every_key_of_it_is_the_servers():
    # `tacit.connect` gives rows alone: what is served is agreed on by the job file of all.
    assert set(inspect.signature(tacit.connect).parameters) == {"job", "me", "keys", "listen"}
    assert "service.bound" in keys(ServeSpec)


def test_what_does_not_fit_together_is_refused_without_a_job():
    with pytest.raises(ConfigError, match="owns both"):
        InferSpec(
            data=InferData(owner="ann"),
            model=InferModel(owner="ann"),
            protocol=InferProtection(kind="sealed", dealer="carol"),
        )
    with pytest.raises(ConfigError, match=r"service\.doors\.south: missing"):
        ServeSpec(
            model=InferModel(layers=("dense 2",), inputs=(3,)),
            service=ServiceTable(doors={"north": "127.0.0.1:9000"}),
            protocol=ServeProtection(kind="sealed", dealer="carol", compute=("north", "south")),
        )


@pytest.mark.parametrize("kind", ["permuted2", "whispered"])
def test_whoever_sees_values_of_rows_is_their_owner_whatever_the_protocol_is_called(
    kind, monkeypatch
):
    """A copy of permuted2 under another name made the owner of the model the one who sees."""
    monkeypatch.setitem(plugins.PLUGINS, "mpc.whispered", plugins.PLUGINS["mpc.permuted2"])
    monkeypatch.setattr(registry, "_WITH_DEALER", (*registry._WITH_DEALER, "whispered"))

    def spec(compute):
        return InferSpec(
            data=InferData(owner="hospital", set="breast-cancer"),
            model=InferModel(owner="lab"),
            protocol=InferProtection(kind=kind, dealer="helper", compute=compute),
        )

    assert spec(None).roles.second == "hospital"
    assert spec(("lab", "hospital")).roles.second == "hospital"
    with pytest.raises(ConfigError, match=f"under {kind} the second party sees permuted values"):
        spec(("hospital", "lab"))
