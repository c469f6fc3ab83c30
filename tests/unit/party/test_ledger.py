import threading

from tacit.party import LeakLedger
from tacit.result import Leak


def record(ledger, **changes):
    entry = {"to": "bob", "what": "sum", "why": "result", "kind": "output", "elements": 3}
    ledger.record(Leak(**{**entry, **changes}))


def test_repeated_looks_add_up_and_different_ones_stay_apart():
    ledger = LeakLedger()
    record(ledger)
    record(ledger, elements=4)
    record(ledger, to="alice")
    assert [(leak.to, leak.elements) for leak in ledger.entries()] == [("bob", 7), ("alice", 3)]


def test_entries_of_many_threads_are_all_kept():
    ledger = LeakLedger()
    threads = [
        threading.Thread(target=lambda: [record(ledger, elements=1) for _ in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.entries()[0].elements == 2000
