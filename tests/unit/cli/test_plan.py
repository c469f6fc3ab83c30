"""`tacit plan`: of every kind of job and of every chat, beside what the run says and sends."""

import io

import numpy as np
import pytest
from rich.console import Console

from support.jobs import JOBS, join_parts, read_changed, tacit_says, take_parts, write_shares
from support.llm import LLAMA, MEETING, make_model, say, write_model
from support.split import run_job
from tacit.cli.screen import OnConsole
from tacit.errors import ConfigError
from tacit.jobs import federated
from tacit.jobs.kind import Asked
from tacit.jobs.kinds import KINDS, kind_of
from tacit.llm import Sampling
from tacit.llm.permuted import (
    Batch,
    Network,
    choose_form,
    fit_precision,
    offline_cost,
    pass_cost,
)
from tacit.llm.permuted.blueprint import Blueprint
from tacit.llm.sealed import (
    Pass,
    SealedClient,
    SealedMemory,
    open_sealed_vault,
    plan_passes,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.llm.sealed.parties import foresee as foresee_chat
from tacit.nn import parse_layers
from tacit.party import merge_results, run_threads
from unit.llm.backend.test_speaker import as_user

LAYERS = ["dense 4", "relu", "dense 10"]
THREE = {"north": {}, "south": {}, "helper": {}}
HEAD = {"name": "j"}


def read(raw):
    return read_changed(raw, {})


def foresee(job, **sizes):
    return kind_of(job).forecast(job, Asked(**sizes))


@pytest.fixture
def weights(tmp_path):
    state = parse_layers(LAYERS, (64,), seed=3).state_dict()
    state = {name.replace(".", "/"): value for name, value in state.items()}
    np.savez(tmp_path / "model.npz", **{name: value.numpy() for name, value in state.items()})
    write_shares(state, tmp_path, ("north", "south"))
    return tmp_path


@pytest.fixture(
    params=["infer, linear", "infer", "infer, shared", "infer, columns", "train", "train, columns"]
)
def job(request, weights):
    raw = {"job": {**HEAD, "kind": request.param.partition(",")[0]}, "parties": dict(THREE)}
    raw["protocol"] = {"kind": "sealed", "dealer": "helper"}
    match request.param:
        case "infer, linear":
            raw["data"] = {"owner": "north", "set": "breast-cancer", "part": "test"}
            raw["model"] = {"owner": "south", "train": {"set": "breast-cancer", "part": "train"}}
        case "infer":
            raw["data"] = {"owner": "north", "set": "digits", "rows": [0, 5]}
            raw["model"] = {"owner": "south", "layers": LAYERS, "inputs": [64]}
            raw["model"]["file"] = str(weights / "model.npz")
        case "infer, shared":
            raw["parties"]["clinic"] = {}
            raw["data"] = {"owner": "clinic", "set": "digits", "rows": [0, 5]}
            shares = {name: str(weights / f"{name}.npz") for name in ("north", "south")}
            raw["model"] = {"layers": LAYERS, "inputs": [64], "shares": shares}
            raw["protocol"]["compute"] = ["north", "south"]
        case "infer, columns":
            shares = {name: str(weights / f"{name}.npz") for name in ("north", "south")}
            stretches = {"north": [0, 40], "south": [40, 64]}
            owners = {
                n: {"set": "digits", "columns": one, "rows": [0, 6]} for n, one in stretches.items()
            }
            raw["data"] = {"owner": "north", "owners": owners}
            raw["model"] = {"layers": LAYERS, "inputs": [64], "shares": shares}
            raw["protocol"]["compute"] = ["north", "south"]
        case "train, columns":
            owners = {
                "north": {"set": "iris", "columns": [0, 2], "rows": [0, 100]},
                "south": {"set": "iris", "columns": [2, 4], "rows": [40, 130]},
            }
            raw["data"] = {"owners": owners, "split": "columns", "labels": "south"}
            raw["model"] = {"layers": ["dense 3"]}
            raw["training"] = {"batch": 32, "keep": False}
        case "train":
            owners = {"north": [0, 40], "south": [40, 90]}
            stretches = {name: {"set": "digits", "rows": rows} for name, rows in owners.items()}
            raw["data"] = {"owners": stretches}
            raw["model"] = {"layers": ["dense 10"]}
            raw["training"] = {"batch": 32, "look_every": 2, "schedule": "linear", "keep": False}
            raw["protocol"] |= {"kind": "permuted3", "give_to": ["north"]}
    return read(raw)


def test_the_plan_of_a_job_between_parties_is_the_forecast_of_its_run(job, tmp_path):
    planned, result = foresee(job), join_parts(job, take_parts(job, tmp_path))
    assert planned.forecast.cost == result.forecast.cost
    assert planned.forecast.plan_hash == result.forecast.plan_hash
    promised = {claim.subject for claim in planned.claims}
    assert promised <= {claim.subject for claim in result.claims}
    told = {(leak.to, leak.what, leak.elements) for leak in result.leakage if leak.kind != "size"}
    assert {(one.to, one.what, one.elements) for one in planned.leaks if one.kind != "size"} == told


def test_the_plan_of_a_split_job_is_the_forecast_of_its_run(tmp_path):
    job = read(
        {
            "job": {**HEAD, "kind": "split", "out": str(tmp_path / "out")},
            "parties": {"lab": {}, "clinic": {}},
            "data": {"set": "iris", "features": ["clinic"], "labels": "lab"},
            "model": {"kind": "mlp", "width": 8},
            "train": {"epochs": 1, "batch": 15, "rate": 0.01},
        }
    )
    parts = run_job(job)
    assert foresee(job).forecast == parts["lab"].result.forecast is not None


def test_the_plan_of_matched_files_is_the_forecast_of_their_run(tmp_path):
    values = np.random.default_rng(0).normal(size=(40, 3))
    files = {"lab": ["id,y"], "clinic": ["id,a,b,c"]}
    for at, row in enumerate(values):
        files["clinic"].append(",".join([str(at), *(f"{one:.4f}" for one in row)]))
        files["lab"].append(f"{at + 5},{at % 2}")  # 35 rows in common
    for name, lines in files.items():
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    job = read(
        {
            "job": {**HEAD, "kind": "split", "out": str(tmp_path / "out")},
            "parties": {"lab": {}, "clinic": {}},
            "data": {
                **{"features": ["clinic"], "labels": "lab", "label": "y", "classes": 2},
                **{"match": "id", "files": {n: str(tmp_path / f"{n}.csv") for n in files}},
            },
            "model": {"kind": "mlp", "width": 4},
            "train": {"epochs": 1, "batch": 8, "rate": 0.01},
        }
    )
    planned, parts = foresee(job), run_job(job)
    result = merge_results(tuple(part.result for part in parts.values()))
    assert planned.forecast == result.forecast is not None
    told = {(leak.to, leak.what, leak.elements) for leak in result.leakage if leak.kind != "size"}
    assert {(one.to, one.what, one.elements) for one in planned.leaks if one.kind != "size"} == told


@pytest.mark.parametrize("aggregator", ["plain", "masked", "shuffled", "encrypted", "keyed"])
def test_the_plan_of_a_federated_job_has_the_bytes_and_the_epsilon_of_its_run(aggregator):
    kinds = {"masked": "central", "keyed": "central", "shuffled": "shuffle"}
    kind = kinds.get(aggregator, "none")
    epsilon = {} if kind == "none" else {"epsilon": 30.0, "delta": 1e-3}
    job = read(
        {
            "job": {**HEAD, "kind": "federated"},
            "data": {"set": "digits", "rows": 200},
            "federated": {
                **{"clients": 6, "rounds": 2, "colluding_share": 0.0},
                "aggregator": aggregator,
                "verified": aggregator in ("encrypted", "keyed"),
            },
            "privacy": {"kind": kind, "clip": 2.0, **epsilon},
            "train": {"steps": 2, "batch": 8},
        }
    )
    planned = foresee(job)
    result = federated.run(job, OnConsole(Console(file=io.StringIO())), ()).result
    up = next(one.value for one in result.utility if one.name.startswith("bytes sent by a client"))
    assert f"A client sends {up:,.0f} B" in planned.lines[1]
    ours = [one for one in result.metered.traffic if "clients" in (one.sender, one.receiver)]
    total = sum(one.payload_bytes for one in ours)
    assert f"all clients {total:,} B in all rounds" in planned.lines[1]
    assert planned.claims[0].epsilon == pytest.approx(result.claims[0].epsilon)
    assert planned.leaks == result.leakage
    assert planned.claims[1:] == result.claims[1:]
    if aggregator == "keyed":  # 650 parameters, a weight and two tags of three words; 6 clients
        assert planned.lines[2] == "The authority sends 2,637 B and receives 920 B in a round."


def test_protocols_are_compared_side_by_side_and_the_one_in_the_job_costs_what_its_plan_says():
    job = JOBS / "predict-breast-cancer.toml"
    code, shown, _ = tacit_says("plan", job, "--all-protocols")
    assert code == 0
    lines = {line.split()[0].rstrip(":"): line for line in shown.splitlines() if line.strip()}
    assert {"sealed", "permuted3", "permuted2"} <= lines.keys()
    assert "refused" in lines["permuted2"]  # the hospital must be the second party there
    alone = tacit_says("plan", job)[1]
    sent = [
        int(line.split()[-2].replace(",", ""))
        for line in alone.splitlines()
        if line.strip().startswith("online")
    ]
    row = next(line for line in shown.splitlines() if line.split()[:1] == ["sealed"])
    assert f"{sum(sent) / 1e6:,.3f} MB" in row
    assert "semi-honest" in lines["sealed"]
    code, _, err = tacit_says("plan", job.with_name("fl-digits.toml"), "--all-protocols")
    assert code == 2
    assert "has protocols to compare" in err


ALONE = {
    "audit": """[data]\nset = "digits"\nrows = 100\n[audit]\nshadows = 4""",
    "audit-llm": """[model]\npath = "tiny"\n[texts]\nfile = "texts.txt"\ncount = 7""",
    "verify": """[model]\nfile = "m.json"\n[data]\nfile = "r.csv"\n[verify]\neps = 0.5""",
}


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Work where the files that `ALONE` names lie: a plan refuses a job without them."""
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", "texts.txt", "m.json", "r.csv"):
        (tmp_path / name).touch()


@pytest.mark.parametrize(
    ("kind", "words"),
    [("audit", "up to 4 shadow models"), ("audit-llm", "7 texts"), ("verify", "by up to 0.5")],
)
@pytest.mark.usefixtures("inputs")
def test_a_job_that_sends_nothing_says_so_and_what_it_does(tmp_path, kind, words):
    path = tmp_path / "job.toml"
    path.write_text(f'[job]\nname = "j"\nkind = "{kind}"\n{ALONE[kind]}\n')
    code, out, err = tacit_says("plan", path)
    assert (code, err) == (0, "")
    assert words in out
    assert "No forecast of traffic: nothing is sent" in out
    assert tacit_says("plan", path, "--rows", 5)[0] == 2  # would change nothing
    for file in ("texts.txt", "m.json"):
        (tmp_path / file).unlink()
    assert tacit_says("plan", path)[0] == (0 if kind == "audit" else 2)


@pytest.mark.usefixtures("inputs")
def test_rows_on_a_cluster_are_not_said_to_stay_here(tmp_path):
    path = tmp_path / "job.toml"
    path.write_text(f'[job]\nname = "j"\nkind = "verify"\n{ALONE["verify"]}\nray = "head:6379"\n')
    code, out, _ = tacit_says("plan", path)
    assert code == 0
    assert "the Ray cluster at 'head:6379' gets the model and the rows" in out
    assert "nothing is sent" not in out


def test_every_kind_has_a_plan():
    assert all(KINDS[name]().forecast is not None for name in KINDS)


def test_a_plan_without_the_data_wants_sizes(tmp_path):
    owners = {"north": {"file": "nowhere.csv"}, "south": {"file": "nowhere.csv"}}
    job = read(
        {
            "job": {**HEAD, "kind": "train"},
            "parties": dict(THREE),
            "data": {"owners": owners},
            "model": {"layers": ["dense 3"]},
            "protocol": {"kind": "sealed", "dealer": "helper"},
        }
    )
    with pytest.raises(ConfigError, match="--rows and --features"):
        foresee(job)
    assert "north 201 × (7,), south 200 × (7,)" in foresee(job, rows=401, features=7).lines[0]


KEYS = [
    f'[parties.{name}]\nkey = "sha256:{digit * 64}"'
    for name, digit in zip(("owner", "user", "dealer"), "abc", strict=True)
]


@pytest.fixture
def plan_chat(tmp_path):
    model = write_model(tmp_path / "tiny")

    def plan(protocol, *options):
        path = tmp_path / "chat.toml"
        path.write_text(f'[chat]\nprotocol = "{protocol}"\n' + "\n".join(KEYS))
        return tacit_says("plan", path, "--model", model, *options)

    return plan


def test_the_plan_of_a_permuted_chat_names_bytes_messages_and_material_of_a_token(plan_chat):
    code, out, err = plan_chat("permuted", "--rows", 8)
    assert code == 0, err
    assert "a prompt of 8 tokens" in out
    # The meter is held against these costs by the contract tests.
    plan = Blueprint(LLAMA, fit_precision(make_model(LLAMA)))
    form = choose_form(plan, Network(), past=8, rows=8, masked_kv=8)
    block = Batch(number=1, past=8, rows=8, prompt=0, masked_kv=8, form=form)
    steps, dealt = [pass_cost(plan, block, run) for run in range(8)], offline_cost(plan, block)
    online = sum(step.payload_bytes for step in steps) / 8
    assert f"A token: {online:,.0f} B in {steps[0].chain} messages" in out
    offline = (dealt.dealer_to_owner_bytes + dealt.dealer_to_user_bytes) / 8
    assert f"offline {offline:,.0f} B from the dealer" in out
    assert "attention scores of each layer" in out  # what the user will see
    slow = plan_chat("permuted", "--rows", 8, "--rtt-ms", 40, "--mbit", 8)[1]
    assert "of a network of 40 ms and 8 Mbit/s" in slow


@pytest.mark.parametrize("counts", [True, False])
def test_the_plan_of_a_permuted_chat_lists_what_its_answers_will_tell(counts, plan_chat):
    def talk(backend):
        list(backend.speak([5, 6, 7], sampling=Sampling(), limit=2))
        return backend.take_spent().leaks

    told = {leak.what for leak in as_user(make_model(LLAMA), talk, counts=counts)}
    out = " ".join(plan_chat("permuted", "--rows", 8)[1].split())
    listed = {one for one in told if f": {one} (" in out}
    assert told - listed == {one for one in told if counts and "how often each was chosen" in one}


def test_a_model_belongs_to_chats_alone():
    code, _, err = tacit_says("plan", JOBS / "split.toml", "--model", "tiny")
    assert code == 2
    assert "--model belongs to the file of a chat" in err


def test_sealed_passes_cost_what_was_planned(plan_chat):
    model = make_model(LLAMA)
    vault = open_sealed_vault(model)

    def use(session):
        client = SealedClient(session, LLAMA, reveal="token")
        say(client, SealedMemory(), [5, 6, 7], 2)
        client.leave()
        return session.ledger.entries()

    programs = {
        "owner": lambda session: (serve_sealed_owner(session, vault), session.cost())[1],
        "user": use,
        "dealer": lambda session: (serve_sealed_dealer(session, LLAMA), session.cost())[1],
    }
    seen = run_threads(programs, MEETING)
    passes = [
        Pass(conversation=0, past=0, rows=3, prompt=0, is_scored=True),
        Pass(conversation=0, past=3, rows=1, prompt=0, is_scored=True),
    ]
    plans = plan_passes(vault, passes)
    assert set(seen["user"]) == set(foresee_chat(vault, passes, plans))

    def size(costs, sender, receiver, phase):
        entries = [one for cost in costs for one in cost.traffic]
        way = (sender, receiver, phase)
        return sum(
            one.payload_bytes for one in entries if (one.sender, one.receiver, one.phase) == way
        )

    planned = [plan.cost for plan in plans]
    for way in (("owner", "user", "online"), ("dealer", "user", "offline")):
        assert size(planned, *way) == size([seen["owner" if way[0] == "owner" else "dealer"]], *way)
        assert size(planned, *way) > 0
    code, out, _ = plan_chat("sealed", "--rows", 3)
    token = sum(one.payload_bytes for one in plans[1].cost.traffic if one.phase == "online")
    assert code == 0
    assert f"A token: {token:,} B in {plans[1].cost.online_rounds} rounds" in out
    dealt = size([plans[1].cost], "dealer", "user", "offline")
    assert f"offline {dealt:,} B from the dealer\n" in out
    assert "Dealt ahead (tacit deal --prompt 3 --tokens 64): a file of " in out
    assert "user, dealer: how large weights and values can be, as powers of two" in out
    assert "user, dealer: the architecture of the model" in out
