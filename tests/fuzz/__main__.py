"""`make fuzz MINUTES=10`: draw programs and modules, run them, and report what is wrong.

    python -m fuzz --minutes 10 [--from SEED] [--protocols sealed permuted3] [--state FILE] [--stop]

A program of `ops` runs under every protocol; a torch module is imported and computed in the clear.
What fails is cut down and printed as a test. With a state file a campaign goes on where it stopped;
the file counts what was drawn and which combinations of verb, type, shape, bound and protocol were
covered.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from fuzz.modules import draw_module, judge_module, shrink_module
from fuzz.program import draw, judge, shrink
from tacit.mpc import PROTOCOLS

MODULES_EACH = 2  # modules drawn beside every program: they take less time
EMPTY = {"next": 0, "programs": 0, "deep": 0, "outcomes": {}, "cells": []}


class Campaign:
    """What was drawn so far, and what came of it."""

    def __init__(self, protocols: list[str], found: dict[str, Any]) -> None:
        self.protocols, self.seed = protocols, int(found["next"])
        self.programs, self.deep = int(found["programs"]), int(found["deep"])
        self.outcomes = Counter(found["outcomes"])
        self.cells = {tuple(one) for one in found["cells"]}
        self.wrong = 0

    def go_on(self) -> None:
        """Draw what the next seed gives, and judge it."""
        program = draw(self.seed)
        for protocol in self.protocols:
            verdict = judge(program, protocol)
            self.outcomes[f"{protocol}: {verdict.outcome}"] += 1
            if verdict.outcome == "right":
                self.cells |= program.cells(protocol)
            elif verdict.outcome == "wrong":
                cut = shrink(program, protocol)
                self._tell(f'judge(found, "{protocol}")', cut, judge(cut, protocol).how)
        for seed in range(MODULES_EACH * self.seed, MODULES_EACH * (self.seed + 1)):
            verdict = judge_module(draw_module(seed))
            self.outcomes[f"modules: {verdict.outcome}"] += 1
            if verdict.outcome == "wrong":
                smallest = shrink_module(draw_module(seed))
                self._tell("judge_module(found)", smallest, judge_module(smallest).how)
        self.seed, self.programs = self.seed + 1, self.programs + 1
        self.deep += len(program.steps) >= 3

    def _tell(self, judged: str, smallest: object, how: str) -> None:
        self.wrong += 1
        print(f"# {how}\ndef test_seed_{self.seed}_{self.wrong}():\n    found = {smallest!r}")
        print(f'    assert {judged}.outcome != "wrong"\n', flush=True)

    def kept(self) -> dict[str, Any]:
        """Return what another part of the campaign goes on from."""
        return {
            "next": self.seed,
            "programs": self.programs,
            "deep": self.deep,
            "outcomes": dict(self.outcomes),
            "cells": sorted(self.cells),
        }


def main() -> int:
    """Run a part of a campaign; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--protocols", nargs="+", choices=list(PROTOCOLS), default=list(PROTOCOLS))
    parser.add_argument("--stop", action="store_true", help="at the first that is wrong")
    parser.add_argument("--state", type=Path, help="where a campaign is kept")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    is_new = asked.state is None or not asked.state.exists()
    found = EMPTY | {"next": asked.first} if is_new else json.loads(asked.state.read_text())
    campaign, end = Campaign(asked.protocols, found), time.monotonic() + 60 * asked.minutes
    print(f"seeds from {campaign.seed}", flush=True)
    while time.monotonic() < end and not (campaign.wrong and asked.stop):
        campaign.go_on()
        if asked.state is not None:
            asked.state.write_text(json.dumps(campaign.kept()))
    print(
        f"{campaign.programs} programs, {campaign.deep} of depth 3 or more, up to seed "
        f"{campaign.seed - 1}; {len(campaign.cells)} combinations right; wrong: {campaign.wrong}"
    )
    for name, count in sorted(campaign.outcomes.items()):
        print(f"  {name} {count}")
    return 1 if campaign.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
