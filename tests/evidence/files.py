"""Files of material that several processes open at once, by any name: one of them begins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from evidence.experiment import Tried, coins
from tacit.mpc.material.offline import MaterialFacts, write_material

PROCESSES = 6
OPENER = """
import sys
from pathlib import Path
from tacit.errors import DataError
from tacit.mpc.material.offline import open_material
print("ready", flush=True)
for line in sys.stdin:
    try:
        with open_material(Path(line.strip()), me="alice") as material:
            material.begin()
            print("begun", flush=True)
            sys.stdin.readline()  # holds it until all others have tried
    except DataError:
        print("refused", flush=True)
        sys.stdin.readline()
"""


def openers(seed: int, count: int) -> Iterator[Tried]:
    """Of six processes that open one file at once, by any of its names, one begins, once."""
    command = [sys.executable, "-c", OPENER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack, TemporaryDirectory() as folder:
        some = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in range(PROCESSES)]
        for one in some:
            assert one.stdout.readline() == "ready\n"
        for at in range(count):
            rng, path = coins("openers", seed, at), Path(folder) / f"{at}.material"
            names = _named(path)
            drawn = [rng.choice(names) for _ in some]
            for turn in ("at once", "afterwards"):
                said = _asked(some, drawn)
                assert said.count("begun") == (turn == "at once"), f"file {at}, {turn}: {said}"
                assert set(said) <= {"begun", "refused"}, f"file {at}: {said}"
            assert path.stat().st_size < 32, "the key is still there"
            yield Tried(f"file {at}, {len(set(drawn))} names", "one of six begins, nobody later")


def _named(path: Path) -> list[Path]:
    """Make a file, a hard link to it and a symbolic link."""
    facts = MaterialFacts(identity="1", party="alice", plans="", about="", body_bytes=0)
    with write_material(path, facts, bytes(16)):
        pass
    hard, soft = path.with_suffix(".hard"), path.with_suffix(".soft")
    os.link(path, hard)
    soft.symlink_to(path)
    return [path, hard, soft]


def _asked(some: list[subprocess.Popen[str]], names: list[Path]) -> list[str]:
    for one, name in zip(some, names, strict=True):
        one.stdin.write(f"{name}\n")
        one.stdin.flush()
    said = [one.stdout.readline().strip() for one in some]
    for one in some:
        one.stdin.write("\n")
        one.stdin.flush()
    return said
