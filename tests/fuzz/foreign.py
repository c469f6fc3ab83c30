"""`python -m fuzz.foreign [NAME …] --minutes 5`: bytes that others wrote, given to what reads them.

Every reader takes what a file, a peer or a browser says; it returns, or refuses by name. Anything
else (another exception, more than some seconds, memory without bound) is a fault. Inputs are good
ones that were changed: bytes that are flipped, cut, doubled and swapped, or values of a tree that
become such of another type or size. Where atheris is installed, it chooses the changes by which
code they reach; else a generator with a seed does. What fails is printed once for every place.
"""

import argparse
import copy
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

from fuzz.readers import READERS, Reader, Tree
from tacit.errors import TacitError

SLOWEST_S = 10
"""Of processor time, as the cores may be shared."""
MOST_BYTES = 12 << 30
"""Of address space, so that what asks for more than there is fails and not the machine."""


class Choices:
    """Decisions that are taken from bytes; without any left, all are the first."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def below(self, count: int) -> int:
        """Decide for one of some."""
        part = self._data[self._at : self._at + 2]
        self._at += 2
        return int.from_bytes(part, "little") % count if count else 0


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 255, 65536, 2**31, 2**32 - 1, 2**53 + 1, 2**63, 2**64),
    *(-(2**31), -(2**63), 10**40, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308),
    *(float("inf"), float("-inf"), float("nan"), "", " ", "x", "0", "-1", "nan", "1e999", "é"),
    *("\x00", "\ud800", "../../x", "a" * 5000, "\n" * 50, "9" * 4400, [], {}, [[]], [None]),
    *([1, "x"], {"": 0}, {"a": {"a": {}}}, [0] * 1000, [1e308] * 3),
)


def places(tree: Tree, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """List the ways to all values below the top."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def change_tree(tree: Tree, choices: Choices) -> Tree:
    """Give one to four values another type or size, leave them out, or put them elsewhere too."""
    tree = copy.deepcopy(tree)
    for _ in range(1 + choices.below(4)):
        ways = list(places(tree))
        if not ways:
            break
        *above, last = ways[choices.below(len(ways))]
        holder = tree
        for key in above:
            holder = holder[key]
        match choices.below(8):
            case 0:
                del holder[last]
            case 1:
                *others, name = ways[choices.below(len(ways))]
                value = tree
                for key in (*others, name):
                    value = value[key]
                holder[last] = copy.deepcopy(value)
            case 2 if isinstance(holder, dict):
                holder[f"{last}x"] = holder[last]
            case 3 if isinstance(holder[last], list) and holder[last]:
                holder[last] = holder[last] * 2 if choices.below(2) else holder[last][:-1]
            case 4 if type(holder[last]) in (int, float):
                holder[last] = -holder[last] if choices.below(2) else holder[last] * 2 + 1
            case _:
                holder[last] = copy.deepcopy(ODD[choices.below(len(ODD))])
    return tree


def change_bytes(data: bytes, choices: Choices) -> bytes:
    """Flip, cut, double, swap or overwrite, one to six times."""
    made = bytearray(data)
    for _ in range(1 + choices.below(6)):
        at = choices.below(len(made))
        match choices.below(7):
            case 0 if made:
                made[at] ^= 1 << choices.below(8)
            case 1:
                del made[at:]
            case 2:
                made[at : at + choices.below(64)] = b""
            case 3:
                made[at:at] = made[at : at + choices.below(256)]
            case 4:
                value = (0, 1, 0x7F, 0x80, 0xFF)[choices.below(5)]
                made[at : at + 1 + choices.below(8)] = bytes([value]) * (1 + choices.below(8))
            case 5:
                made[at : at + 8] = struct.pack("<Q", 1 << choices.below(64))
            case _:
                made[at : at + 1] = bytes([choices.below(256)])
    return bytes(made)


def draw(reader: Reader, seeds: list[Any], data: bytes) -> Any:
    """Change a good input as some bytes say; none change nothing."""
    choices = Choices(data)
    seed = seeds[choices.below(len(seeds))]
    if not data:
        return seed if reader.write is None else reader.write(seed)
    if reader.write is None:
        return change_bytes(seed, choices)
    return reader.write(change_tree(seed, choices))


def judge(reader: Reader, given: Any) -> str | None:
    """Read it; return None if it was read or refused by name, else where and how it failed."""
    try:
        with _in_time():
            reader.read(given)
    except TacitError:
        return None
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        ours = [
            one for one in traceback.extract_tb(error.__traceback__) if "tacit/" in one.filename
        ]
        place = f"{Path(ours[-1].filename).name}:{ours[-1].name}" if ours else "outside"
        return f"{place}: {type(error).__name__}: {str(error)[:120]!r}"
    return None


@contextmanager
def _in_time() -> Iterator[None]:
    def late(*_: object) -> NoReturn:
        raise TimeoutError(f"more than {SLOWEST_S} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SLOWEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Search:
    """Inputs of one reader, and the places where it failed."""

    def __init__(self, name: str) -> None:
        self.name, self.reader = name, READERS[name]
        self.seeds = self.reader.seeds()
        self.found: dict[str, bytes] = {}
        self.count = 0
        for seed in self.seeds:
            self.reader.read(seed if self.reader.write is None else self.reader.write(seed))

    def take(self, data: bytes) -> None:
        """Try what some bytes say."""
        self.count += 1
        given = draw(self.reader, self.seeds, data)
        wrong = judge(self.reader, given)
        place = wrong and wrong.split(":", 3)[:3]
        if wrong and ":".join(place or ()) not in self.found:
            self.found[":".join(place or ())] = data
            shown = given if len(repr(given)) < 3000 else f"draw(…, {data!r})"
            print(f"{self.name}: {wrong}\n    {shown!r}", flush=True)

    def at_random(self, seed: int, seconds: float) -> None:
        """Let a generator choose."""
        coins, end = random.Random(seed), time.monotonic() + seconds  # noqa: S311 - no secrets
        while time.monotonic() < end:
            self.take(coins.randbytes(coins.randrange(2, 80)))

    def by_coverage(self, seed: int, seconds: float) -> NoReturn:
        """Let atheris choose, by the code that inputs reach; it ends the process."""
        import atheris  # type: ignore[import-not-found]

        end = time.monotonic() + seconds

        def take(data: bytes) -> None:
            self.take(data)
            if time.monotonic() > end:
                print(self.summary(), flush=True)
                os._exit(bool(self.found))

        limits = [f"-seed={seed + 1}", "-max_len=96", "-rss_limit_mb=8192", "-verbosity=0"]
        atheris.Setup([sys.argv[0], *limits], take)
        atheris.Fuzz()
        raise AssertionError("atheris ends the process")

    def summary(self) -> str:
        """Say how many were tried, and in how many places it failed."""
        return f"{self.name}: {self.count} inputs, {len(self.found)} faults"


def _instrumented() -> AbstractContextManager[None]:
    import atheris  # type: ignore[import-not-found]

    instrumented: AbstractContextManager[None] = atheris.instrument_imports(include=["tacit"])
    return instrumented


def main() -> int:
    """Search for a while; 1 if anything failed otherwise than by name."""
    parser = argparse.ArgumentParser(
        prog="fuzz.foreign", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", choices=[*READERS, []], metavar="NAME")
    parser.add_argument("--minutes", type=float, default=5.0, help="for all of them together")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--atheris", action="store_true", help="choose by coverage (one NAME)")
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    names = asked.names or list(READERS)
    searches = []
    for name in names:
        with _instrumented() if asked.atheris else nullcontext():
            search = Search(name)  # its good inputs import what reads them
        seconds = 60 * asked.minutes / len(names)
        (search.by_coverage if asked.atheris else search.at_random)(asked.first, seconds)
        searches.append(search)
        print(search.summary(), flush=True)
    return 1 if any(search.found for search in searches) else 0


if __name__ == "__main__":
    sys.exit(main())
