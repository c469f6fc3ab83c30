"""A service answers many clients as the model in the clear would, and no client harms another."""

import gc
import resource
import threading
import time

import pytest
import torch

from support.mpc import MEETING, PARTIES, ROLES, by_size
from tacit import ring
from tacit.errors import DataError, DisagreementError, LinkClosed, RangeError
from tacit.inference.service import (
    PredictionClient,
    PredictionServer,
    deal_predictions,
    load_share,
    plan_service,
)
from tacit.inference.service.queue import Order, RequestQueue, Ticket
from tacit.inference.service.server import foreseen
from tacit.inference.service.task import SharedWalk
from tacit.mpc.arithmetic.opening import OpenMasked
from tacit.party import run_threads
from tacit.transport import Frame, frame_bytes


def ask_raw(link, number, words):
    link.send(f"ask/{number}", Frame("i64", tuple(words.shape), ring.to_bytes(words)))


def visit(links, number=7):
    for link in links.values():
        link.recv("terms/0")
        link.send("visit/0", Frame("i64", (1,), ring.to_bytes(torch.tensor((number,)))))


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
@pytest.mark.parametrize("reveal", ["class", "score"])
def test_answers_are_those_of_the_model_in_the_clear(
    make_service_task, serving, rows, protocol, reveal
):
    task = make_service_task(protocol=protocol, reveal=reveal)
    with serving(task) as service:
        answers = service.client("client-0").ask(rows)  # more rows than fit into one question
    torch.testing.assert_close(answers, service.plain(rows), atol=2e-3, rtol=0.0)


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_both_answers_together_say_no_more_than_their_sum(
    make_service_task, serving, rows, protocol, monkeypatch
):
    """Shares hang on what parties hold: a mask that is fresh in each batch goes on top."""
    shares, answers = {}, {}
    run, answer = SharedWalk.answer, RequestQueue.answer

    def noting_run(self, padded, weights, x=None):
        share = run(self, padded, weights, x)
        if share is not None:  # of a server, and not in the rehearsal
            shares.setdefault(self.walker.me, []).append(share.words.clone())
        return share

    def noting_answer(self, ticket, words):
        name = next(one for one, server in service.servers.items() if server.queue is self)
        answers.setdefault(name, []).append(words.clone())
        return answer(self, ticket, words)

    monkeypatch.setattr(SharedWalk, "answer", noting_run)
    monkeypatch.setattr(RequestQueue, "answer", noting_answer)
    task = make_service_task(protocol=protocol, sizes=(8,))
    with serving(task) as service:
        client = service.client("client-0")
        for _ in range(2):
            client.ask(rows[:8])
    first, second = (
        [told - share for told, share in zip(answers[name], shares[name], strict=True)]
        for name in ROLES.computing
    )
    for mask, other in zip(first, second, strict=True):
        assert torch.equal(mask, -other)  # the sum stays what it was
        assert len(set(mask.flatten().tolist())) == mask.numel()
        assert int(mask.abs().max()) > 1 << 58
    assert not torch.equal(*first)


@pytest.mark.parametrize("protocol", ["sealed", "permuted3"])
def test_who_asked_how_often_is_in_the_ledgers_as_it_was_foreseen(
    make_service_task, serving, rows, protocol
):
    task = make_service_task(protocol=protocol, clients=("client-0", "client-1"), sizes=(8,))
    with serving(task) as service:
        for name, times in (("client-0", 3), ("client-1", 1)):
            client = service.client(name)
            for _ in range(times):
                client.ask(rows[:1])
    written = {}
    for tally in service.ends["ends"].values():
        written |= {(leak.to, leak.what): leak.elements for leak in tally.ledger.entries()}
    for server in ROLES.computing:
        assert written[server, "when client-0 asks, and about how many rows"] == 3
        assert written[server, "when client-1 asks, and about how many rows"] == 1
    batches = "when questions are answered, and to how many rows they were filled up"
    assert written[ROLES.dealer, batches] == 4
    planned = plan_service(task, parties=PARTIES)
    listed = foreseen(task, planned)
    assert set(written) == {(one.to, one.what) for one in listed if one.to != "clients"}


def test_weights_are_opened_under_masks_once_and_not_with_every_question(
    make_service_task, serving, rows
):
    task = make_service_task()
    with serving(task) as service:
        client = service.client("client-0")
        for at in range(3):
            client.ask(rows[at : at + 1])
        server = service.servers[ROLES.first]
        opened = {
            size: {spec.shape for step in plan.steps for spec in _held(step)}
            for size, (plan, _) in by_size(server.tally.walk.walker).items()
        }
    shapes = {tuple(value.shape) for value in task.model.initial.values()}
    assert opened.pop(0) == shapes
    assert opened
    assert all(not shapes & ones for ones in opened.values())


def test_plans_are_agreed_upon_before_weights_are_opened(make_service_task, shares_of):
    # The bound of weights is in no digest of a client's terms, so plans alone can differ by it.
    tasks = dict.fromkeys(PARTIES, make_service_task())
    tasks[ROLES.second] = make_service_task(weight_bound=8.0)
    meters = {}

    def party(session):
        meters[session.me] = session.meter
        task = tasks[session.me]
        if session.me == ROLES.dealer:
            return deal_predictions(session, task)
        share = shares_of(task.model.initial, task.spec.frac_bits)[session.me]
        return PredictionServer(session, task, share).run(threading.Event())

    with pytest.raises(DisagreementError, match="another plan"):
        run_threads(dict.fromkeys(PARTIES, party), MEETING)
    sent = [one for meter in meters.values() for one in meter.traffic()]
    assert sent
    assert {one.phase for one in sent} == {"setup"}


def _held(step):
    return step.operands if isinstance(step.kernel, OpenMasked) else ()


def test_a_model_with_one_score_answers_yes_or_no(make_service_task, serving, rows):
    task = make_service_task(layers=("dense 1",))
    with serving(task) as service:
        answers = service.client("client-0").ask(rows)
    assert torch.equal(answers, service.plain(rows))


def test_what_a_server_gets_of_a_question_is_not_the_question(make_service_task, serving):
    task = make_service_task()
    seen = []
    with serving(task) as service:
        links = service.links("client-0")
        for link in links.values():
            send = link.send
            link.send = lambda tag, frame, phase="online", send=send: (
                seen.append((tag, bytes(frame.data))),
                send(tag, frame, phase=phase),
            )
        client = PredictionClient("client-0", task, links)
        client.ask(torch.zeros(1, 6))
        client.ask(torch.zeros(1, 6))
    words = [data for tag, data in seen if tag.startswith("ask/")]
    assert len(set(words)) == len(words) == 4
    assert all(data.count(0) < len(data) // 2 for data in words)


def test_a_wrong_shape_is_told_to_its_client_alone_and_the_service_goes_on(
    make_service_task, serving, rows
):
    task = make_service_task()
    with serving(task) as service:
        bad, good = service.links("client-0"), service.client("client-1")
        visit(bad)
        for link in bad.values():
            ask_raw(link, 0, torch.zeros((2, 5), dtype=torch.int64))
        for link in bad.values():
            assert b"wanted rows of shape (6,)" in bytes(link.recv("answer/0").data)
        for link in bad.values():
            ask_raw(link, 1, torch.zeros((99, 6), dtype=torch.int64))
        for link in bad.values():
            assert b"1 to 32 rows" in bytes(link.recv("answer/1").data)
        # The same visit may ask rightly after that.
        for link in bad.values():
            ask_raw(link, 2, torch.zeros((3, 6), dtype=torch.int64))
        for link in bad.values():
            assert link.recv("answer/2").shape == (3, 1)
        assert torch.equal(good.ask(rows), service.plain(rows))


def test_shares_of_different_shapes_are_refused_by_both_servers(make_service_task, serving, rows):
    task = make_service_task()
    with serving(task) as service:
        links = service.links("client-0")
        visit(links)
        for count, link in zip((2, 3), links.values(), strict=True):
            ask_raw(link, 0, torch.zeros((count, 6), dtype=torch.int64))
        for link in links.values():
            assert b"shares of the same shape" in bytes(link.recv("answer/0").data)
        assert torch.equal(service.client("client-1").ask(rows), service.plain(rows))


def test_a_share_that_goes_to_one_server_only_is_given_up_after_a_while(
    make_service_task, serving, rows
):
    task = make_service_task()
    with serving(task, answer_s=0.3) as service:
        links = service.links("client-0")
        visit(links)
        ask_raw(links[ROLES.first], 0, torch.zeros((1, 6), dtype=torch.int64))
        assert b"did not get its share" in bytes(links[ROLES.first].recv("answer/0").data)
        assert service.servers[ROLES.first].queue.waiting() == 0
        for server in service.servers.values():
            server.queue._answer_s = 200.0
        assert torch.equal(service.client("client-1").ask(rows), service.plain(rows))


def test_a_client_that_dies_midway_harms_nobody_and_may_come_back(make_service_task, serving, rows):
    task = make_service_task()
    with serving(task) as service:
        links = service.links("client-0")
        visit(links)
        ask_raw(links[ROLES.first], 0, torch.zeros((1, 6), dtype=torch.int64))
        for link in links.values():
            link.kill()
        assert torch.equal(service.client("client-1").ask(rows), service.plain(rows))
        assert torch.equal(service.client("client-0").ask(rows), service.plain(rows))


def test_a_client_that_comes_again_and_again_leaves_nothing_waiting(
    make_service_task, serving, rows
):
    task = make_service_task()
    with serving(task) as service:
        queue = service.servers[ROLES.first].queue
        for number in range(20):
            links = service.links("client-0")
            visit(links, number)
            ask_raw(links[ROLES.first], 0, torch.zeros((1, 6), dtype=torch.int64))
        assert torch.equal(service.client("client-0").ask(rows), service.plain(rows))
        for _ in range(2000):
            if queue.waiting() <= 1 and len(readers_of("client-0")) <= 4:
                break
            time.sleep(0.05)
        assert queue.waiting() <= 1
        assert len(readers_of("client-0")) <= 4


def test_a_question_that_comes_when_its_link_was_replaced_is_not_waited_for(make_service_task):
    task, reports = make_service_task(), []
    queue = RequestQueue(task, report=lambda ticket, rows: reports.append(ticket), answer_s=200.0)
    link = Asked("client-0", torch.zeros((1, 6), dtype=torch.int64))
    queue._links["client-0"] = Asked("client-0", None)  # the next visit, which gave up the others
    queue._answer_one(link, Ticket(0, 1, 0))
    assert b"another connection took the place" in link.sent
    assert queue.waiting() == 0


class Asked:
    """A link on which one question has come."""

    def __init__(self, peer, words):
        self.peer, self._words, self.sent = peer, words, b""

    def recv(self, tag):
        return Frame("i64", tuple(self._words.shape), ring.to_bytes(self._words))

    def send(self, tag, frame, *, phase="online"):
        self.sent += bytes(frame.data)


def readers_of(client):
    return [one for one in threading.enumerate() if one.name == f"tacit-client-{client}"]


def test_two_hundred_questions_of_eight_clients_are_answered_and_nothing_is_left(
    make_service_task, serving, rows
):
    ask_many(make_service_task(), serving, rows, questions=200)


@pytest.mark.slow
def test_ten_thousand_questions_of_eight_clients_take_no_more_memory(
    make_service_task, serving, rows
):
    task = make_service_task()
    with serving(task) as service:
        half_way = ask_all(service, rows, questions=5_000)
        in_the_end = ask_all(service, rows, questions=5_000)
    # The peak of the process may rise by a few pages of the allocator, not with every question.
    assert in_the_end - half_way < 8 << 20


def ask_all(service, rows, *, questions):
    wrong = []

    def client(number):
        mine = service.client(f"client-{number}")
        for at in range(questions // 8):
            part = rows[at % 30 : at % 30 + 1 + at % 3]
            if not torch.equal(mine.ask(part), service.plain(part)):
                wrong.append((number, at))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ask_many(task, serving, rows, *, questions):
    with serving(task) as service:
        ask_all(service, rows, questions=questions)
        for server in service.servers.values():
            assert server.queue.waiting() == 0
            assert server.tally.questions == questions
            assert len(server.tally.ledger.entries()) < 30  # however many questions there were
            assert set(by_size(server.tally.walk.walker)) <= {0, *task.sizes}
            assert len(server.tally.walk.runs) <= 2 + len(task.sizes)
    dealer = service.ends["ends"][ROLES.dealer]
    assert {size: times for size, (_, times) in by_size(dealer.walk.walker).items()} == {
        size: times for size, (_, times) in by_size(server.tally.walk.walker).items()
    }


def test_the_client_refuses_rows_that_the_service_cannot_take(make_service_task, serving):
    with serving(make_service_task()) as service:
        client = service.client("client-0")
        with pytest.raises(DataError, match="wanted rows of shape"):
            client.ask(torch.zeros(2, 5))
        with pytest.raises(RangeError, match="exceed the bound"):
            client.ask(torch.full((1, 6), 3.0))
        with pytest.raises(DataError, match="NaN"):
            client.ask(torch.full((1, 6), float("nan")))


def test_a_client_with_other_terms_does_not_ask(make_service_task, serving):
    with serving(make_service_task()) as service:
        other = make_service_task(reveal="score")
        with pytest.raises(DisagreementError, match="another service"):
            PredictionClient("client-0", other, service.links("client-0"))


def test_a_service_that_ends_tells_its_clients(make_service_task, serving):
    with serving(make_service_task()) as service:
        client = service.client("client-0")
        client.ask(torch.zeros(1, 6))
    with pytest.raises(LinkClosed):
        client.ask(torch.zeros(1, 6))


def test_a_desk_answers_a_refused_visit_with_the_end_of_the_link(make_service_task, serving):
    with serving(make_service_task()) as service:
        links = service.links("client-0")
        for link in links.values():
            link.recv("terms/0")
            link.send("visit/0", frame_bytes(b"not a number"))
        with pytest.raises(LinkClosed):
            links[ROLES.first].recv("answer/0")


def test_an_order_forgets_visits_that_were_given_up():
    order = Order()
    for number in range(50):
        order.report(Ticket(0, number, 0), 1)
        order.report(Ticket(1, 5, number), 1)
    order.report(Ticket(0, 49, 0), 1)
    order.report(Ticket(0, 3, 0), 1)
    assert order.take(8, wait_s=0.0) == [(Ticket(0, 49, 0), 1)]
    waiting = [len(some) for visits in order._waiting.values() for some in visits.values()]
    assert sum(waiting) < 10


def test_a_client_that_comes_again_and_again_fills_no_batch():
    # In 0.1 the batch grew with every visit, and one of more than 4096 questions ended the service.
    order = Order()
    for number in range(5000):
        order.report(Ticket(0, number, 0), 1)
        order.report(Ticket(0, number, 0), 2)
    for number in range(5000, 5050):
        for _ in range(2):
            order.report(Ticket(0, number, 0), 5)
    for _ in range(2):
        order.report(Ticket(1, 7, 0), 3)
    items = order.take(8, wait_s=0.0)
    assert [(ticket.client, rows) for ticket, rows in items if rows] == [(0, 5), (1, 3)]
    assert len(items) < 10
    assert order.take(8, wait_s=0.0) == []


def test_an_order_fills_a_batch_without_splitting_a_question():
    order = Order()
    for number, rows in enumerate((5, 2, 4)):
        for _ in range(2):
            order.report(Ticket(number, 0, 0), rows)
    assert [rows for _, rows in order.take(8, wait_s=0.0)] == [5, 2]
    assert [rows for _, rows in order.take(8, wait_s=0.0)] == [4]


def test_shares_of_another_model_are_refused(make_service_task, tmp_path):
    task = make_service_task()
    with pytest.raises(DataError, match="wanted a share of"):
        task.share_of({})
    with pytest.raises(DataError, match="cannot read"):
        load_share(tmp_path / "none.npz", frac_bits=16, bound=4.0)


class Dripping:
    """A link whose other end takes a byte now and then, so that closing it never ends."""

    peer = "client-0"

    def __init__(self):
        self.is_over = threading.Event()

    def send(self, tag, frame, *, phase="online"):
        pass

    def recv(self, tag):
        self.is_over.wait()
        raise LinkClosed(self.peer, "over")

    def close(self, *, failure=None):
        self.is_over.wait()


def test_a_service_ends_though_a_client_takes_its_answers_without_end(make_service_task):
    queue = RequestQueue(make_service_task(), report=lambda ticket, rows: None, goodbye_s=0.05)
    link = Dripping()
    queue.admit(link)
    ending = threading.Thread(target=queue.close, daemon=True)
    ending.start()
    ending.join(30.0)
    is_over = not ending.is_alive()
    link.is_over.set()
    assert is_over


def test_an_answer_to_nobody_is_dropped(make_service_task):
    queue = RequestQueue(make_service_task(), report=lambda ticket, rows: None)
    queue.answer(Ticket(0, 0, 0), "too late")
    assert queue.words(Ticket(0, 0, 0)) is None
