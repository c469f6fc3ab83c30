"""Which files a walk enters: run this to count a private decode step of each protocol.

    cd tests && python -m support.walks

A file counts when one of its functions is called, in any thread, while the step lasts. Material
that was prepared before the step does not count, as it would not if one read along.
"""

import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import tacit
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


if __name__ == "__main__":
    threading.setprofile(hear)
    for protocol in ("permuted", "sealed"):
        entered.clear()
        with tempfile.TemporaryDirectory() as name:
            decode_step(Path(name), protocol)
        print(protocol, *sorted(entered), sep="\n")
        rooms = Counter(name.partition("/")[0] for name in sorted(entered))
        print(f"{len(entered)} files:", ", ".join(f"{n} in {room}" for room, n in rooms.items()))
