"""Run an experiment of the page of attacks again: `python -m evidence NAME --seed 0 --count N`.

    python -m evidence --list

It prints what it tried and what it found; what contradicts the page ends it with 3. The page's own
figures are those of seed 0 and the count that `--list` shows.
"""

import argparse
import sys

import torch

from evidence.table import TABLE


def main() -> int:
    """Run one experiment, or list them."""
    parser = argparse.ArgumentParser(prog="evidence", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", nargs="?", choices=list(TABLE))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, help="how many tries; the page's by default")
    parser.add_argument("--list", action="store_true", help="name all experiments")
    asked = parser.parse_args()
    if asked.list or asked.name is None:
        for one in TABLE.values():
            print(f"{one.name:18} {one.count:6}  {one.promise}")
        return 0
    torch.set_num_threads(1)
    one = TABLE[asked.name]
    count = one.count if asked.count is None else asked.count
    print(f"{one.name}, seed {asked.seed}, count {count}: {one.promise}", flush=True)
    try:
        found = one.tally(asked.seed, count, lambda line: print(line, flush=True))
    except AssertionError as error:
        print(f"CONTRADICTED: {error}")
        return 3
    for kind, often in found.most_common():
        print(f"{often:9,}  {kind}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
