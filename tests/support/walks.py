"""Which files a walk enters: two jobs, a private training, a private decode step of each protocol.

    cd tests && python -m support.walks

A file counts when one of its functions is called, in any thread, while the walk lasts. Material
that was prepared before a step does not count, as it would not if one read along; nor does what a
first training loads.
"""

import os
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import torch

import tacit
from golden.jobs import run_job
from support.llm import write_model
from tacit.llm import chat

PACKAGE = str(Path(tacit.__file__).parent)
entered: set[str] = set()
is_counting = False


def hear(frame, event, value):
    """Note the file of a call; ends what it listens to when nothing is counted."""
    name = frame.f_code.co_filename
    if is_counting and event == "call" and name.startswith(PACKAGE):
        entered.add(name[len(PACKAGE) + 1 :])


def decode_step(folder, protocol):
    """Take the third token of an answer."""
    global is_counting
    with chat(write_model(folder / "tiny"), protocol=protocol, limit=6) as talk:
        sys.setprofile(hear)
        pieces = iter(talk.say("hello"))
        next(pieces), next(pieces)
        is_counting = True
        next(pieces)
        is_counting = False
        sys.setprofile(None)
        list(pieces)


def training(folder, epsilon):
    """Train a small network twice, and count the second time."""
    global is_counting
    coins = torch.Generator().manual_seed(0)
    owners = {
        name: (torch.rand(40, 4, generator=coins) / 2, torch.arange(40) % 2) for name in ("a", "b")
    }
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    for is_second in (False, True):
        sys.setprofile(hear if is_second else None)
        is_counting = is_second
        tacit.train(module, owners, epsilon=epsilon, epochs=2)
    is_counting = False
    sys.setprofile(None)


def job(folder, name):
    """Run a job twice, with its parties as threads, and count the second time."""
    global is_counting
    os.chdir(folder)
    for is_second in (False, True):
        sys.setprofile(hear if is_second else None)
        is_counting = is_second
        run_job(name)
    is_counting = False
    sys.setprofile(None)


WALKS = {
    "demo": (job, "predict-breast-cancer"),
    "fit": (job, "fit-columns"),
    "training": (training, 8.0),
    "permuted": (decode_step, "permuted"),
    "sealed": (decode_step, "sealed"),
}

if __name__ == "__main__":
    threading.setprofile(hear)
    for walk, (take, how) in WALKS.items():
        if walk not in (sys.argv[1:] or WALKS):
            continue
        entered.clear()
        with tempfile.TemporaryDirectory() as name:
            take(Path(name), how)
        print(walk, *sorted(entered), sep="\n")
        rooms = Counter(name.partition("/")[0] for name in sorted(entered))
        print(f"{len(entered)} files:", ", ".join(f"{n} in {room}" for room, n in rooms.items()))
