"""A service of a model that one server owns: right answers, and sizes told."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

from support.mpc import MEETING, PARTIES, ROLES
from tacit import ring
from tacit.data import ColumnTable
from tacit.errors import ConfigError, DataError, DisagreementError, RangeError
from tacit.inference.forest import make_forest
from tacit.inference.service import PredictionClient, plan_service
from tacit.inference.service.client import _hear_sizes
from tacit.inference.service.server import foreseen
from tacit.inference.service.sized import agree_on_sizes, sizes_of
from tacit.inference.service.task import SharedWalk
from tacit.mpc.run import compute
from tacit.party import run_threads
from tacit.transport import Frame, Meter, memory_pair
from tacit.verify import import_ensemble

X = np.random.default_rng(3).normal(size=(60, 5)) * np.array([1, 10, 0.1, 1e3, 1])
Y = (X[:, 0] + X[:, 1] / 10 > 0).astype(int) + (X[:, 3] > 500)
OTHER = {"sealed": ROLES.second, "permuted3": ROLES.first}


@pytest.fixture(scope="module")
def forest():
    model = RandomForestClassifier(6, max_depth=3, random_state=0).fit(X, Y)
    return model, make_forest(import_ensemble(model), is_class=True)


@pytest.mark.parametrize(("protocol", "owner"), OTHER.items())
def test_a_forest_of_either_server_answers_as_its_library_does(
    make_owned_task, serving, forest, protocol, owner
):
    model, mine = forest
    task = make_owned_task(owner, sizes_of(mine), protocol=protocol, kind="forest")
    with serving(task, owned=mine.weights) as service:
        answers = service.client("client-0").ask(torch.from_numpy(X))
    assert answers.long().tolist() == model.predict(X).tolist()


def test_a_boosted_model_of_two_classes_answers_where_values_are_missing_alike(
    make_owned_task, serving
):
    model = GradientBoostingClassifier(n_estimators=5, max_depth=2, random_state=0).fit(X, Y > 0)
    mine = make_forest(import_ensemble(model), is_class=True)
    task = make_owned_task(ROLES.first, sizes_of(mine), kind="forest")
    with serving(task, owned=mine.weights) as service:
        client = service.client("client-0")
        assert client.ask(torch.from_numpy(X)).tolist() == model.predict(X).tolist()
        with pytest.raises(DataError, match="missing values"):
            client.ask(torch.full((1, 5), torch.nan))


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
@pytest.mark.parametrize("reveal", ["class", "score"])
def test_a_linear_model_gives_classes_or_probabilities(
    make_owned_task, serving, rows, protocol, reveal
):
    weights = {"weight": torch.linspace(-3, 40, 6).reshape(-1, 1), "bias": torch.tensor([-0.5])}
    service = {"reveal": reveal}
    task = make_owned_task(ROLES.first, sizes_of(weights), protocol=protocol, service=service)
    with serving(task, owned=weights) as running:
        answers = running.client("client-0").ask(rows)
    scores = rows @ weights["weight"].double()[:, 0] - 0.5
    plain = (scores > 0).double() if reveal == "class" else torch.sigmoid(scores)
    torch.testing.assert_close(answers, plain, atol=2e-3, rtol=0.0)


def test_a_network_of_one_server_answers_as_in_the_clear(make_owned_task, serving, rows):
    task = make_owned_task(
        ROLES.second,
        layers=("dense 8", "relu", "dense 3"),
        inputs=(6,),
        service={"reveal": "score"},
    )
    weights = {name: 2 * value for name, value in task.model.initial.items()}
    with serving(task, owned=weights) as service:
        answers = service.client("client-0").ask(rows)
        torch.testing.assert_close(answers, service.plain(rows), atol=2e-3, rtol=0.0)


def test_what_is_told_of_a_forest_is_in_the_ledgers_and_in_the_plan(
    make_owned_task, serving, forest
):
    _, mine = forest
    task = make_owned_task(ROLES.first, sizes_of(mine), kind="forest", sizes=(8,))
    listed = {(one.to, one.what) for one in foreseen(task, plan_service(task, parties=PARTIES))}
    what = "how many trees of which depth, columns and classes the forest has"
    assert {to for to, said in listed if said == what} == {ROLES.second, ROLES.dealer, "clients"}
    with serving(task, owned=mine.weights) as service:
        for name in task.clients:
            service.client(name).ask(torch.from_numpy(X[:1]))
    tallies = service.ends["ends"].values()
    written = {(leak.to, leak.what) for one in tallies for leak in one.ledger.entries()}
    # Sizes are told before a task is there, and the classes go to clients.
    assert listed - written == {
        *((to, what) for to in (ROLES.second, ROLES.dealer, "clients")),
        ("clients", "the class of every row that they asked about"),
    }
    assert written <= listed


def test_weights_of_an_owner_enter_as_words_that_say_nothing(make_owned_task, monkeypatch):
    """Neither the other server nor the dealer gets anything that hangs on the weights."""
    seen = {}

    def noting(session, plan, program, **how):
        found = compute(session, plan, program, **how)
        if isinstance(found, dict):
            seen[session.me] = {name: one.words.clone() for name, one in found.items()}
        return found

    monkeypatch.setattr("tacit.mpc.walker.compute", noting)
    task = make_owned_task(ROLES.first, (600,))
    both = []
    for size in (0.0, 200.0):
        weights = {"weight": torch.full((600, 1), size), "bias": torch.zeros(1)}

        def party(session, weights=weights):
            held = weights if session.me == ROLES.first else {}
            SharedWalk(task, session=session).begin(held, parties=session.parties)
            return sum(x.payload_bytes for x in session.cost().traffic if x.phase != "setup")

        seen.clear()
        sent = run_threads(dict.fromkeys(PARTIES, party), MEETING)
        assert list(sent.values()) == [0, 0, 0]
        other = seen[ROLES.second]["weight"]
        assert len(set(other.flatten().tolist())) == 600
        assert int(other.abs().max()) > 1 << 58
        whole = ring.decode(other + seen[ROLES.first]["weight"], frac_bits=task.spec.frac_bits)
        assert torch.equal(whole, weights["weight"].double())
        both.append(other)
    assert not torch.equal(*both)  # masks of another session


def test_a_weight_beyond_the_bound_and_weights_of_another_model_are_refused(
    make_owned_task, serving
):
    task = make_owned_task(ROLES.first, (6,))
    weights = {"weight": torch.zeros(6, 1), "bias": torch.full((1,), 300.0)}
    with pytest.raises(RangeError, match=r"set model\.bound to 512"):
        task.weights_of(weights)
    with pytest.raises(DataError, match="of shape"):
        task.weights_of({"weight": torch.zeros(5, 1), "bias": torch.zeros(1)})


def test_an_owner_that_announces_what_nobody_could_compute_is_named(make_owned_task):
    for told in ((1, 40, 5, 2, 0), (0, 2, 5, 2, 0), (1 << 40, 3, 5, 2, 0)):
        with pytest.raises(DisagreementError, match=ROLES.first):
            make_owned_task(ROLES.first, told, kind="forest")
    for told in ((0,), (1 << 40,), (3, 3)):
        with pytest.raises(DisagreementError, match=ROLES.first):
            make_owned_task(ROLES.first, told)


def test_a_client_with_other_columns_units_or_sizes_does_not_ask(make_owned_task, serving, rows):
    """Answers about other columns or in other units would be wrong, and nobody would notice."""
    columns, halves = tuple("abcdef"), {"*": ColumnTable(divide=2.0)}
    weights = {"weight": torch.ones(6, 1), "bias": torch.zeros(1)}
    task = make_owned_task(
        ROLES.first, (6,), service={"columns": columns, "prepare": halves, "bound": 1.0}
    )

    def other(told=(6,), **service):
        told_by = {"columns": columns, "prepare": halves, "bound": 1.0} | service
        return make_owned_task(ROLES.first, told, service=told_by)

    changed = [
        other(columns=columns[::-1]),
        other(prepare={**halves, "f": ColumnTable(divide=2.5)}),
        other(bound=64.0),
        other(reveal="score"),
        other(told=(5,), columns=columns[:5]),
    ]
    with serving(task, owned=weights) as service:
        for one in changed:
            links = service.links("client-0")
            for link in links.values():
                assert link.recv("told/0").shape == (1,)
            with pytest.raises(DisagreementError, match="another service"):
                PredictionClient("client-0", one, links)
        assert service.client("client-1").ask(rows).tolist() == service.plain(rows).tolist()


def test_a_client_that_sends_words_beyond_every_bound_learns_a_class_and_harms_nobody(
    make_owned_task, serving, forest
):
    """Whatever is compared, what comes out of a forest is which leaf it reaches."""
    model, mine = forest
    task = make_owned_task(ROLES.first, sizes_of(mine), kind="forest", sizes=(8,))
    with serving(task, owned=mine.weights) as service:
        client = service.client("client-0")
        wild = ring.Prg(b"w" * 16).words((8, *task.model.inputs))
        mask = ring.Prg(b"m" * 16).words((8, *task.model.inputs))
        answers = client._exchange((mask, wild - mask))
        whole = answers[0] + answers[1]
        assert set(whole.flatten().tolist()) <= set(range(mine.scores))
        again = service.client("client-1").ask(torch.from_numpy(X[:8]))
        assert again.tolist() == model.predict(X[:8]).tolist()


def test_the_same_question_twice_is_two_questions_with_other_shares(
    make_owned_task, serving, forest
):
    """Both answers are the class and nothing else; shares of one do not help with the other."""
    _, mine = forest
    task = make_owned_task(ROLES.first, sizes_of(mine), kind="forest", sizes=(8,))
    with serving(task, owned=mine.weights) as service:
        client = service.client("client-0")
        words = torch.zeros((8, *task.model.inputs), dtype=torch.int64)
        mask = ring.Prg(b"m" * 16).words((8, *task.model.inputs))
        first, second = (client._exchange((mask, words - mask)) for _ in range(2))
    assert torch.equal(sum(first), sum(second))
    for one, two in zip(first, second, strict=True):
        assert len({*one.flatten().tolist(), *two.flatten().tolist()}) == 16


@pytest.mark.parametrize(
    ("model", "service", "key"),
    [
        ({"owner": "carol", "kind": "forest"}, {}, "model.owner"),
        ({"kind": "forest"}, {}, "model.owner"),
        ({}, {}, "model.owner"),
        ({"owner": "alice", "kind": "forest"}, {"reveal": "score"}, "service.reveal"),
        ({"owner": "alice", "kind": "forest"}, {"bound": 2.0}, "service.bound"),
        ({"owner": "alice"}, {"columns": ("a", "a")}, "columns"),
    ],
)
def test_what_no_service_can_do_is_refused_by_its_key(make_owned_task, model, service, key):
    owner = model.pop("owner", None)
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        make_owned_task(owner, (6,), service=service, **model)


def test_sizes_are_told_by_the_owner_alone(make_owned_task):
    task = make_owned_task(ROLES.second, (6,))

    def party(session):
        mine = (6,) if session.me == ROLES.second else None
        return agree_on_sizes(session, task.spec, mine), session.ledger.entries()

    found = run_threads(dict.fromkeys(PARTIES, party), MEETING)
    assert {told for told, _ in found.values()} == {(6,)}
    written = {(leak.to, leak.what) for _, ledger in found.values() for leak in ledger}
    what = "the number of features the model takes"
    assert written == {(name, what) for name in PARTIES if name != ROLES.second}


def test_servers_that_tell_a_client_other_sizes_of_one_model_are_not_asked(make_owned_task):
    task, links = make_owned_task(ROLES.second, (6,)), []
    for name, wide in zip(ROLES.computing, (6, 7), strict=True):
        mine, theirs = memory_pair("ann", name, meter_a=Meter("ann"), meter_b=Meter(name))
        theirs.send("told/0", Frame("i64", (1,), ring.to_bytes(torch.tensor((wide,)))))
        links.append(mine)
    with pytest.raises(DisagreementError, match="other sizes of the model"):
        _hear_sizes(task.spec, links)


def test_many_rows_are_asked_in_blocks_of_which_a_server_keeps_one(
    make_owned_task, serving, monkeypatch
):
    weights = {"weight": torch.ones(3, 1), "bias": torch.zeros(1)}
    task, kept, told = make_owned_task(ROLES.first, (3,), sizes=(8, 64)), [], []
    rows = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (1000, 3)))
    with serving(task, owned=weights) as service:
        queues = [server.queue for server in service.servers.values()]
        client = service.client("client-0")

        def tell(done, total):
            kept.extend(queue.waiting() for queue in queues)
            told.append((done, total))

        answers = client.ask(rows, tell)
    assert torch.equal(answers, service.plain(rows))
    assert told == [(min(at, 1000), 1000) for at in range(64, 1064, 64)]
    assert max(kept) <= 1


def test_rows_that_are_wrong_at_the_end_are_refused_where_they_are(make_owned_task, serving):
    task = make_owned_task(ROLES.first, (3,), sizes=(8,))
    weights = {"weight": torch.ones(3, 1), "bias": torch.zeros(1)}
    with serving(task, owned=weights) as service:
        client = service.client("client-0")
        with pytest.raises(DataError, match="wanted rows of shape"):
            client.ask(torch.zeros((20, 2)))
        rows = torch.full((20, 3), 0.5)
        rows[19, 1] = 2.0  # beyond service.bound
        with pytest.raises(RangeError, match="exceed the bound"):
            client.ask(rows)
        assert client.ask(rows[:3]).tolist() == [1.0] * 3
