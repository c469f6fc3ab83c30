"""Threads that make, trace and run modules at once do not disturb each other."""

import threading

import torch
from torch import nn

from tacit.dp.mixing import find_mixing, tell
from tacit.exclusive import seeded
from tacit.federated.training import build_model
from tacit.nn import import_module
from tacit.split import cut


class Busy(nn.Module):
    """Does something beside being traced."""

    def __init__(self, meanwhile):
        super().__init__()
        self.cut, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(4))
        self.meanwhile = [meanwhile]

    def forward(self, x):
        self.meanwhile[0](self)
        return self.head(self.cut(x) * self.scale)


def beside(work, *, within_s=None):
    """Do something in another thread, and give it up to so long."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(within_s)
    return thread


def test_other_threads_run_any_module_while_one_is_imported():
    other, seen = nn.Linear(2, 3), []

    def meanwhile(busy):
        beside(lambda: seen.append((other(torch.ones(1, 2)), busy.cut(torch.ones(4)), busy.scale)))

    busy = Busy(meanwhile)
    import_module(busy)
    wanted = other(torch.ones(1, 2)), busy.cut(torch.ones(4)), busy.scale
    for found in seen:
        assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))
    assert seen


def test_of_two_threads_that_trace_the_later_one_waits():
    plain, threads = (nn.Module.__call__, nn.Module.__getattr__), []
    small = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))

    def meanwhile(busy):
        threads.append(beside(lambda: cut(small, "0"), within_s=0.2))
        assert threads[-1].is_alive()

    import_module(Busy(meanwhile))
    for thread in threads:
        thread.join(200)
    assert (nn.Module.__call__, nn.Module.__getattr__) == plain


def test_what_a_thread_makes_follows_its_seed_whatever_others_make():
    def draw(meanwhile=lambda: None):
        with seeded(7):
            first = nn.Linear(3, 3).weight
            meanwhile()
            return torch.cat([first, nn.Linear(3, 3).weight])

    threads, before = [], torch.random.get_rng_state()
    alone = draw()
    together = draw(
        lambda: threads.append(beside(lambda: build_model("linear", (3,), 2, seed=0), within_s=0.2))
    )
    for thread in threads:
        thread.join(200)
    assert torch.equal(alone, together)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_of_two_threads_that_look_for_mixing_the_later_one_waits():
    """Both seed torch's one generator: at once, one saw the other's dropout, or both hung."""
    threads = []

    def look(meanwhile=lambda: None):
        def answer(batch):
            meanwhile()
            return tell(nn.functional.dropout(batch, 0.5))

        return find_mixing(answer, torch.arange(12.0).reshape(4, 3), records=4)

    def beside_once():
        if not threads:
            threads.append(beside(look, within_s=0.2))
            assert threads[0].is_alive()

    assert look() == look(beside_once) == ""
    threads[0].join(200)
    assert not threads[0].is_alive()
