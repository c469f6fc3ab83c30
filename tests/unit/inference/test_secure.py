"""A module made private by one call: values, costs, leakage, and being one party of three."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import nn

import tacit
from support.mpc import PATIENCE
from tacit.errors import ConfigError, DataError, DisagreementError, InputError, RangeError
from tacit.inference import Crew, secure
from tacit.inference.secured import INPUT
from tacit.mpc import PROTOCOLS, find_protocol
from tacit.mpc.registry import NO_DEALER
from tacit.nn import TorchOps, import_module, logistic_score
from tacit.party import Meeting, run_threads, without_setup

CREW = Crew(client="hospital", server="lab", dealer="notary")
MEETING = Meeting(parties=CREW.parties, job_digest=b"s" * 32, patience=PATIENCE)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def rows(count=4):
    return torch.rand(count, 6, generator=torch.Generator().manual_seed(9)) * 4 - 2


EVERY = (*PROTOCOLS, NO_DEALER)


@pytest.mark.parametrize("protocol", EVERY)
def test_one_word_swaps_the_protocol_and_the_answer_stays(protocol):
    module, x = network(), rows()
    answer = tacit.secure(module, protocol=protocol)(x)
    assert (answer.values - module(x)).abs().max() < 5e-4
    assert without_setup(answer.cost) == answer.result.forecast.cost
    assert answer.result.protocol == protocol
    assert answer.result.launched == "threads"


@pytest.mark.parametrize("protocol", EVERY)
def test_the_leakage_is_that_of_the_protocol_and_no_more(protocol):
    answer = secure(network(), protocol=protocol)(rows())
    shown = {leak.to for leak in answer.ledger if leak.kind == "protocol"}
    seats = {"dealer": "dealer", "second": "client"}  # the client has the rows, and is the second
    assert shown == {seats[one] for one in find_protocol(protocol).shows_to}
    outputs = {(leak.to, leak.elements) for leak in answer.ledger if leak.kind == "output"}
    assert outputs == {("client", 12)}
    sizes = {leak.what for leak in answer.ledger if leak.kind == "size"}
    assert any("input" in what for what in sizes)
    assert any("weight" in what for what in sizes)


def test_without_a_dealer_there_are_two_parties_whatever_the_crew_names():
    private = secure(network(), protocol=NO_DEALER, crew=CREW)
    answer = private(rows(1))
    assert [one.name for one in answer.result.parties] == ["hospital", "lab"]
    assert "notary" not in repr(private)
    phases = {one.phase for one in answer.cost.traffic}
    assert {"offline", "online"} <= phases


def test_a_class_is_all_that_is_revealed_if_so_wished():
    module, x = network(), rows()
    answer = secure(module, reveal="class")(x)
    assert answer.values.tolist() == module(x).argmax(-1).tolist()
    assert [leak.elements for leak in answer.ledger if leak.kind == "output"] == [4]


def test_a_forecast_before_is_the_cost_after():
    private = secure(network(), bound=2.0)
    assert private.forecast((4, 6)).cost == without_setup(private(rows()).cost)


def test_a_forecast_without_any_bound_is_refused():
    with pytest.raises(ConfigError, match="bound"):
        secure(network()).forecast((4, 6))


def test_a_function_of_ops_is_made_private_with_its_weights():
    weights = {"weight": torch.ones(6, 1), "bias": torch.tensor([0.5])}
    answer = secure(logistic_score, weights=weights)(rows())
    wanted = torch.sigmoid(rows() @ weights["weight"] + 0.5)
    assert (answer.values - wanted).abs().max() < 1e-3


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_party_joins_with_its_own_copy_and_only_the_lab_has_the_weights(protocol):
    module, x = network(), rows()
    copies = {
        "hospital": secure(network(seed=1), protocol=protocol, crew=CREW),
        "lab": secure(module, protocol=protocol, crew=CREW),
        "notary": secure(network(seed=2), protocol=protocol, crew=CREW),
    }

    def party(session):
        given = x if session.me == "hospital" else None
        return copies[session.me].join(session, given)

    answers = run_threads(dict.fromkeys(CREW.parties, party), MEETING)
    assert (answers["hospital"].values - module(x)).abs().max() < 5e-4
    assert answers["lab"].values is None
    assert answers["notary"].values is None
    assert len({answer.result.forecast.plan_hash for answer in answers.values()}) == 1


def test_parties_with_different_modules_do_not_start():
    private = secure(network(), crew=CREW)
    other = secure(nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 8)), crew=CREW)

    def party(session):
        mine = other if session.me == "notary" else private
        return mine.join(session, rows() if session.me == "hospital" else None)

    with pytest.raises((DisagreementError, InputError)):
        run_threads(dict.fromkeys(CREW.parties, party), MEETING)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ((3, 0, 4, 6, -1, 0, 0, 0, 0, 0), "impossible shape"),
        ((99, 0, 4, 6, 0, 0, 0, 0, 0, 0), "impossible shape"),
        ((2, 0, 1 << 20, 1 << 20, 0, 0, 0, 0, 0, 0), "impossible shape"),
        ((2, 4000, 4, 6, 0, 0, 0, 0, 0, 0), "64 bits"),
    ],
)
def test_what_a_client_announces_is_checked(said, words):
    private = secure(network(), crew=CREW)

    def party(session):
        if session.me == "hospital":
            session.publish(INPUT, said)
            return session.finish()
        return private.join(session)

    with pytest.raises(DisagreementError, match=words):
        run_threads(dict.fromkeys(CREW.parties, party), MEETING)


def test_a_client_without_an_input_is_told():
    private = secure(network(), crew=CREW)
    with pytest.raises(DataError, match="must give an input"):
        run_threads(dict.fromkeys(CREW.parties, private.join), MEETING)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_input_that_is_no_number_is_refused(value):
    x = rows()
    x[0, 0] = value
    with pytest.raises(DataError, match="NaN"):
        secure(network())(x)


def test_an_input_beyond_its_promise_is_refused():
    with pytest.raises(RangeError, match="exceed the bound"):
        secure(network(), bound=1.0)(rows())


@pytest.mark.parametrize("x", [torch.tensor(1.0), torch.zeros(0, 6), ["one"]])
def test_what_is_no_input_is_refused(x):
    with pytest.raises(DataError, match=r"wanted (a tensor|rows of numbers)"):
        secure(network())(x)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "open"}, "unknown protocol"),
        ({"reveal": "all"}, "reveal"),
        ({"frac_bits": 4}, "from 10 to 30, got 4"),
        ({"weights": {}}, "of its own"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        secure(network(), **options)(rows())


def test_a_crew_is_three_parties():
    with pytest.raises(ConfigError, match="three"):
        Crew(client="a", server="a")


def test_a_function_wants_weights_and_no_cap():
    with pytest.raises(ConfigError, match="wants weights"):
        secure(logistic_score)
    with pytest.raises(ConfigError, match=r"ops\.cap"):
        secure(logistic_score, weights={}, cap=4.0)


def deep(factor, *, layers=10):
    torch.manual_seed(2)
    parts = [one for _ in range(layers - 2) for one in (nn.Linear(32, 32), nn.ReLU())]
    module = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), *parts, nn.Linear(32, 3)).eval()
    for layer in module[::2]:
        layer.weight.data.mul_(factor)
    return module


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_network_of_ten_layers_answers_with_defaults(protocol):
    module = deep(4.0)
    private = secure(module, protocol=protocol)
    answer = private(rows())
    assert (answer.values - module(rows())).abs().max() < 2e-3 * module(rows()).abs().max()
    assert without_setup(answer.cost) == answer.result.forecast.cost
    assert "saturate at ±4096" in answer.result.notes[0]
    assert "cap= of tacit.secure" in answer.result.notes[0]


def test_a_shallow_network_has_no_cap():
    answer = secure(network())(rows())
    assert answer.result.notes == ()


def test_a_network_that_no_cap_helps_is_refused_with_what_to_do():
    with pytest.raises(RangeError, match=r"layer \d+: .*need more.*cap= of tacit\.secure"):
        secure(deep(8.0), frac_bits=28)(rows())
    with pytest.raises(RangeError, match=r"a cap of 1e\+09.* choose a smaller one"):
        secure(deep(8.0), cap=1e9)(rows())


def test_a_chosen_cap_is_kept():
    module = deep(8.0)
    model = replace(import_module(module), cap=1024.0)
    wanted = model(TorchOps(), model.weights, rows().double())
    answer = secure(module, cap=1024.0)(rows())
    assert (answer.values - wanted).abs().max() < 1e-3 * 1024
    assert "±1024" in answer.result.notes[0]


def test_a_private_model_and_its_answer_say_what_they_are_and_show_no_weight():
    module = network()
    private = secure(module, crew=CREW, bound=2.0)
    answer = secure(module)(rows())
    weight = f"{module[0].weight[0, 0].item():.4f}"
    for one, words in (
        (private, ["Linear(in_features=6", "ReLU()", "83", "sealed", "hospital (data)", "±2"]),
        (answer, ["(4, 3)", "online", "rounds", "shown to client", "no guarantee"]),
    ):
        for text in (str(one), repr(one), one._repr_html_()):
            assert all(word in text for word in words), text
            assert weight not in text
        assert one._repr_html_().startswith("<table>")
    assert "&lt;b&gt;" in replace(answer.result, name="<b>")._repr_html_()
    assert "a function" not in repr(secure(logistic_score, weights={}))


def test_importing_tacit_alone_loads_no_torch():
    code = "import sys, tacit; print('torch' in sys.modules, tacit.secure.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.split() == ["False", "secure"]


def test_a_name_that_tacit_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = tacit.nothing
