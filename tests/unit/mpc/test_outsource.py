"""Products given to a worker: right ones are used, whoever lies is named and not asked again."""

import pytest
import torch

from tacit import ring
from tacit.errors import LinkClosed, PartyError
from tacit.mpc import Roles, compute, find_protocol, make_plan, outsource, serve
from tacit.mpc.outsource import (
    MOST_PRODUCTS,
    DeviceWorker,
    Outsourcing,
    RemoteWorker,
    break_even,
    outsourced,
    serve_products,
)
from tacit.party import Meeting, run_threads
from tacit.ring import Prg

ROLES = Roles("ann", "bob", "deb")
X, Y = torch.linspace(-1, 1, 48).reshape(6, 8), torch.linspace(2, -2, 40).reshape(8, 5)


class Liar:
    """A worker that spoils its answers, or keeps them to itself."""

    name = "worker of ann"

    def __init__(self, spoil):
        self.spoil = spoil
        self.asked = 0

    def multiply(self, left, right, kept=0):
        self.asked += 1
        return self.spoil(ring.matmul(left, right))

    def forget(self, kept):
        pass


def giving(worker, **options):
    return Outsourcing(worker, Prg(bytes(16)), least_terms=1, thin_rows=0, **options)


def run(workers):
    """Multiply two secrets; parties named in ``workers`` give their products away."""

    def program(ops):
        x = ops.input("x", owner="ann", shape=(6, 8), bound=1.0)
        y = ops.input("y", owner="bob", shape=(8, 5), bound=2.0)
        shared = ops.matmul(ops.add(x, x), ops.add(y, y))  # nobody's own: both parties multiply
        return ops.open(shared, to=("bob",), what="product", why="a test")

    plan = make_plan(program, find_protocol("sealed"), ROLES, frac_bits=16)

    def work(session):
        inputs = {"ann": {"x": X}, "bob": {"y": Y}}.get(session.me, {})
        if session.me == "deb":
            return serve(session, plan, inputs=inputs)
        return compute(session, plan, program, inputs=inputs)

    def party(session):
        if session.me not in workers:
            return work(session)
        with outsourced(workers[session.me]):
            return work(session)

    meeting = Meeting(parties=("ann", "bob", "deb"), job_digest=bytes(32))
    return run_threads(dict.fromkeys(meeting.parties, party), meeting)["bob"]


def test_parties_and_dealer_get_the_same_result_from_workers():
    workers = {one: giving(DeviceWorker("cpu")) for one in ("ann", "bob", "deb")}
    assert torch.allclose(run(workers).float(), 4 * X @ Y, atol=2.0**-12)
    assert all(one.given >= 1 for one in workers.values())


LIES = {
    "an entry": lambda c: c + torch.nn.functional.one_hot(torch.tensor([[3, 0, 1, 2, 4, 0]]), 5)[0],
    "the top bit of all": lambda c: c + torch.iinfo(torch.int64).min,
    "a row": lambda c: torch.cat([c[1:2], c[1:]]),
    "zeros": torch.zeros_like,
    "another shape": lambda c: c[:, :-1],
    "another type": lambda c: c.to(torch.int32),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("who", ["ann", "deb"])
def test_a_worker_that_lies_is_named_and_nothing_of_it_is_used(lie, who):
    with pytest.raises(PartyError, match=r"worker of ann.*product 1 .*not the product") as caught:
        run({who: giving(Liar(LIES[lie]))})
    assert caught.value.exit_code == 4


def test_every_power_of_two_in_one_entry_is_caught():
    left, right = Prg(bytes(16)).words((4, 3)), Prg(bytes(15) + b"1").words((3, 2))
    for bit in range(64):
        error = torch.zeros((4, 2), dtype=torch.int64)
        error[bit % 4, bit % 2] = (1 << bit) - (1 << 64) * (bit == 63)
        with pytest.raises(PartyError, match="not the product"):
            giving(Liar(lambda c, error=error: c + error)).matmul(left, right)


@pytest.mark.parametrize("is_lying", [False, True])
def test_convolutions_and_batches_of_different_matrices_are_given_away(is_lying):
    prg = Prg(bytes(16))
    images, weights = prg.words((2, 4, 6, 6)), prg.words((6, 2, 3, 3))
    left, right = prg.words((2, 1, 5, 4)), prg.words((3, 4, 6))
    settings = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2), "groups": 2}
    liar = Liar(lambda c: c + (torch.arange(c.numel()).view(c.shape) == 7) * (-1 << 63) * is_lying)
    with outsourced(giving(liar, on_failure="local")) as outsourcing:
        assert torch.equal(
            outsource.conv2d(images, weights, **settings), ring.conv2d(images, weights, **settings)
        )
        assert torch.equal(outsource.matmul(left, right), ring.matmul(left, right))
    assert outsourcing.given == (0 if is_lying else 2 + 6)
    assert ("not the product" in outsourcing.failure) == is_lying
    thin = Outsourcing(liar, prg, least_terms=1)
    with outsourced(thin):  # few filters: the check would be as long as the product
        outsource.conv2d(images, weights, **settings)
    assert thin.given == 0


def test_an_old_answer_is_no_answer():
    class Replayer(Liar):
        def multiply(self, left, right, kept=0):
            self.first = getattr(self, "first", ring.matmul(left, right))
            return self.first

    outsourcing, prg = giving(Replayer(None)), Prg(bytes(16))
    left, right = prg.words((4, 4)), prg.words((4, 4))
    outsourcing.matmul(left, right)
    with pytest.raises(PartyError, match="product 2 "):
        outsourcing.matmul(right, left)


def test_a_party_can_go_on_without_a_worker_that_was_caught():
    liar = Liar(torch.zeros_like)
    outsourcing = giving(liar, on_failure="local")
    assert torch.allclose(run({"ann": outsourcing}).float(), 4 * X @ Y, atol=2.0**-12)
    assert liar.asked == 1
    assert "not the product" in outsourcing.failure


def test_a_worker_at_the_end_of_a_link_multiplies_until_it_is_released():
    def owner(session):
        worker = RemoteWorker(session, "worker")
        with outsourced(giving(worker)) as outsourcing:
            found = outsourcing.matmul(ring.encode(X, frac_bits=8), ring.encode(Y, frac_bits=8))
        worker.release()
        return found

    programs = {"ann": owner, "worker": lambda session: serve_products(session, "ann")}
    found = run_threads(programs, Meeting(parties=("ann", "worker"), job_digest=bytes(32)))
    wanted = ring.matmul(ring.encode(X, frac_bits=8), ring.encode(Y, frac_bits=8))
    assert torch.equal(found["ann"], wanted)
    assert found["worker"] == 1


ABUSES = {
    "an answer of 80 GB": [(100_000, 1, 1, 100_000, 0)],
    "sizes below nothing": [(-4, 4, 4, 4, 0)],
    "sizes that do not fit": [(4, 4, 5, 4, 0)],
    "more than any memory": [(1 << 62, 1 << 62, 1 << 62, 1 << 62, 0)],
    "another size than was kept": [(2, 2, 2, 2, 1), (2, 3, 3, 2, 1)],
    "ever more that is kept": [(1, 300, 300, 300, number) for number in range(1, 20)],
    "ever more small ones": [(1, 1, 1, 1, number) for number in range(1, 300)],
}


@pytest.mark.parametrize("what", ABUSES)
def test_a_worker_refuses_what_its_party_may_not_make_it_hold(what):
    def owner(session):
        for number, announced in enumerate(ABUSES[what], 1):
            tag = f"product/{number}"
            session.send("worker", f"{tag}.shape", torch.tensor(announced))
            for rows, columns in (announced[:2], announced[2:4]):
                if 0 <= rows * columns < 1 << 20:
                    words = torch.zeros((rows, columns)).long()
                    session.send("worker", f"{tag}.operand", words)
            session.recv("worker", f"{tag}.answer", (announced[0], announced[3]))

    def worker(session):
        return serve_products(session, "ann", memory_bytes=4 << 20)

    with pytest.raises(PartyError, match=r"'ann' failed.*announced a product of"):
        run_threads(
            {"ann": owner, "worker": worker},
            Meeting(parties=("ann", "worker"), job_digest=bytes(32)),
        )


def test_a_product_that_cannot_be_made_is_the_workers_failure_and_its_words_are_not_told():
    def full(left, right):
        raise RuntimeError("CUDA out of memory: secret")

    def owner(session):
        worker = RemoteWorker(session, "worker")
        worker.multiply(torch.zeros((2, 2)).long(), torch.zeros((2, 2)).long())

    with pytest.raises(PartyError, match=r"'worker' failed.* 2 × 2 by 2 × 2: RuntimeError$"):
        run_threads(
            {"ann": owner, "worker": lambda session: serve_products(session, "ann", multiply=full)},
            Meeting(parties=("ann", "worker"), job_digest=bytes(32)),
        )


class Counting(DeviceWorker):
    """Notes which right operands it was told to keep, and to forget."""

    def multiply(self, left, right, kept=0):
        NOTED.append(kept)
        return super().multiply(left, right, kept)

    def forget(self, kept):
        NOTED.append(-kept)
        super().forget(kept)


NOTED = []


def test_weights_that_come_again_stay_with_the_worker_and_their_check_is_prepared():
    prg = Prg(bytes(16))
    outsourcing = Outsourcing(Counting("cpu"), prg, least_terms=1)
    weights = prg.words((32, 24))
    NOTED.clear()
    for rows in (3, 3, 2):  # thin products, as of one text after another
        left = prg.words((rows, 32))
        assert torch.equal(outsourcing.matmul(left, weights.t().t()), ring.matmul(left, weights))
    assert NOTED == [1, 1]  # the first one was computed here
    weights += 1  # other weights in the same memory are not the ones that were kept
    assert torch.equal(outsourcing.matmul(left, weights), ring.matmul(left, weights))
    assert NOTED == [1, 1]
    del weights
    outsourcing.matmul(left, prg.words((32, 24)))
    assert NOTED == [1, 1, -1]


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_a_prepared_check_catches_errors_and_is_not_used_again(bit):
    prg = Prg(bytes(16))
    left, weights = prg.words((3, 8)), prg.words((8, 5))
    error = torch.zeros((3, 5), dtype=torch.int64)
    error[1, 2] = (1 << bit) - (1 << 64) * (bit == 63)
    liar = Liar(lambda c: c + error)
    outsourcing = Outsourcing(liar, prg, least_terms=1, on_failure="local")
    for _ in range(3):
        assert torch.equal(outsourcing.matmul(left, weights), ring.matmul(left, weights))
    assert liar.asked == 1
    assert "not the product" in outsourcing.failure


def test_a_worker_at_the_end_of_a_link_keeps_weights_and_forgets_them():
    def owner(session):
        worker, prg = RemoteWorker(session, "worker"), Prg(bytes(16))
        outsourcing = giving(worker)
        weights, other = prg.words((8, 5)), prg.words((8, 5))
        found = [outsourcing.matmul(prg.words((3, 8)), weights) for _ in range(3)]
        sent = sum(one.payload_bytes for one in session.cost().traffic if one.sender == "ann")
        del weights
        found.append(outsourcing.matmul(prg.words((3, 8)), other))
        worker.release()
        return len(found), sent

    programs = {"ann": owner, "worker": lambda session: serve_products(session, "ann")}
    found = run_threads(programs, Meeting(parties=("ann", "worker"), job_digest=bytes(32)))
    count, sent = found["ann"]
    assert count == found["worker"] == 4
    assert sent < 3 * (3 * 8 + 5) * 8 + 3 * 8 * 5 * 8  # the third time weights do not travel


def test_a_worker_that_dies_is_named_with_the_product():
    class Dying(Liar):
        def multiply(self, left, right, kept=0):
            raise LinkClosed(self.name, "went away")

    with pytest.raises(PartyError, match=r"product 1 \(6 × 8 by 8 × 5\).*went away"):
        giving(Dying(None)).matmul(torch.zeros((6, 8)).long(), torch.zeros((8, 5)).long())


def test_a_worker_that_breaks_is_named_and_its_words_are_not_repeated():
    class Broken(Liar):
        def multiply(self, left, right, kept=0):
            raise KeyError(f"operands {left.tolist()}")

    left = torch.full((6, 8), 4711)
    with pytest.raises(PartyError, match=r"worker of ann.*it raised KeyError") as caught:
        giving(Broken(None)).matmul(left, torch.zeros((8, 5)).long())
    assert "4711" not in str(caught.value)


def test_nothing_is_given_to_a_worker_that_is_not_faster():
    class Clock:
        """A second passes at every look; what a worker takes beyond it comes on top."""

        now = 0.0

        def __call__(self):
            self.now += 1
            return self.now

    class Timed(Liar):
        def __init__(self, clock, taken):
            super().__init__(None)
            self.clock, self.taken = clock, taken

        def multiply(self, left, right, kept=0):
            self.clock.now += self.taken(len(left))
            return ring.matmul(left, right)

    def measured(taken):
        clock = Clock()
        return break_even(Timed(clock, taken), Prg(bytes(16)), sides=(64, 128), clock=clock)

    assert measured(lambda side: 0.5) == MOST_PRODUCTS
    assert measured(lambda side: -0.5) == 64**3
    assert measured(lambda side: 0.5 if side == 64 else -0.5) == 128**3
    small = Outsourcing(Liar(torch.zeros_like), Prg(bytes(16)), least_terms=MOST_PRODUCTS)
    left = Prg(bytes(16)).words((4, 4))
    assert torch.equal(small.matmul(left, left), ring.matmul(left, left))
    assert small.worker.asked == 0


class Alike(torch.Tensor):
    """A matrix that says it is equal to whatever it is compared with."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.equal:
            return True
        return super().__torch_function__(function, types, args, kwargs or {})


ZEROS = torch.zeros((4, 4), dtype=torch.int64)
ODD = {
    "a matrix that compares itself": ZEROS.as_subclass(Alike),
    "a sparse matrix": ZEROS.to_sparse(),
    "a matrix without values": ZEROS.to("meta"),
    "nothing": None,
}


@pytest.mark.parametrize("what", ODD)
def test_an_answer_that_is_no_plain_matrix_is_the_workers_fault(what):
    left = Prg(bytes(16)).words((4, 4))
    with pytest.raises(PartyError, match="not the product"):
        giving(Liar(lambda _: ODD[what])).matmul(left, left)


def test_a_worker_cannot_change_operands_before_the_check_or_its_answer_after_it():
    prg = Prg(bytes(16))
    left, right = prg.words((4, 4)), prg.words((4, 4))
    wanted, held = ring.matmul(left, right), []

    class Changing(Liar):
        def multiply(self, left, right, kept=0):
            held.append(ring.matmul(left, right))
            left.zero_()
            return held[-1] if self.spoil is None else self.spoil(held[-1])

    found = giving(Changing(None)).matmul(left, right)
    held[0].zero_()
    assert torch.equal(found, wanted)
    with pytest.raises(PartyError, match="not the product"):
        giving(Changing(torch.zeros_like)).matmul(left, right)
