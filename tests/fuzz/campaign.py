"""A campaign: which way comes next, what was drawn so far, and what came of it."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fuzz.draw import Coverage, draw
from fuzz.estimators import draw_task, judge_task, shrink_task
from fuzz.jobs import draw_job, judge_job, shrink_job
from fuzz.judge import Verdict, judge, shrink
from fuzz.modules import draw_module, judge_module, shrink_module
from tacit.mpc import PROTOCOLS

WAYS = {
    "sealed": 2,
    "checked": 8,
    "permuted3": 2,
    "permuted2": 2,
    "modules": 3,
    "tasks": 24,
    "jobs": 24,
}
"""What is drawn, and how seldom: by how long one takes, and by how much code is only run there."""


@dataclass
class Campaign:
    """Seeds from one on: each draws what has had least of its share so far."""

    ways: list[str]
    seed: int = 0
    wrong: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    steps: int = 0
    deep: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    shrinks: bool = True

    @classmethod
    def of(cls, kept: dict[str, Any], ways: list[str]) -> "Campaign":
        """Take up what an earlier part has kept."""
        drawn = Counter({tuple(cell): count for *cell, count in kept.get("drawn", [])})
        refused = {tuple(cell) for cell in kept.get("refused", [])}
        return cls(
            ways,
            int(kept["next"]),
            outcomes=Counter(kept.get("outcomes", {})),
            drawn=Counter(kept.get("ways", {})),
            seconds=float(kept.get("seconds", 0)),
            steps=int(kept.get("steps", 0)),
            deep=int(kept.get("deep", 0)),
            coverage=Coverage(drawn, refused),
        )

    def kept(self) -> dict[str, Any]:
        """Return what another part of the campaign goes on from."""
        return {
            "next": self.seed,
            "outcomes": self.outcomes,
            "ways": self.drawn,
            "seconds": self.seconds,
            "steps": self.steps,
            "deep": self.deep,
            "drawn": [[*cell, count] for cell, count in sorted(self.coverage.drawn.items())],
            "refused": sorted(self.coverage.refused),
        }

    def go_on(self) -> None:
        """Draw what the next seed gives, and judge it."""
        way = min(self.ways, key=lambda one: self.drawn[one] * WAYS[one])
        start = time.process_time()
        if way == "modules":
            verdict = self._made(draw_module, judge_module, shrink_module)
        elif way == "tasks":
            verdict = self._made(draw_task, judge_task, shrink_task)
        elif way == "jobs":
            verdict = self._made(draw_job, judge_job, shrink_job)
        else:
            verdict = self._program(way)
        self.drawn[way] += 1
        self.seconds += time.process_time() - start
        self.outcomes[f"{way}: {verdict.outcome}"] += 1
        self.seed += 1

    def _program(self, protocol: str) -> Verdict:
        program = draw(self.seed, protocol, self.coverage)
        verdict = judge(program, protocol)
        self.steps += len(program.steps)
        self.deep += len(program.steps) >= 3
        if verdict.outcome == "wrong":
            self.wrong += 1
        if verdict.outcome == "wrong" and self.shrinks:
            cut = shrink(program, lambda one: judge(one, protocol).outcome == "wrong", protocol)
            self._tell(f'judge(found, "{protocol}")', cut, verdict.how)
        return verdict

    def _made(
        self,
        draws: Callable[[int], Any],
        judges: Callable[[Any], Verdict],
        shrinks: Callable[[Any], Any],
    ) -> Verdict:
        """Draw and judge what is no program of ops."""
        verdict = judges(draws(self.seed))
        if verdict.outcome == "wrong":
            self.wrong += 1
        if verdict.outcome == "wrong" and self.shrinks:
            smallest = shrinks(draws(self.seed))
            self._tell(f"{judges.__name__}(found)", smallest, verdict.how)
        return verdict

    def _tell(self, judged: str, smallest: object, how: str) -> None:
        print(f"# {how}\ndef test_seed_{self.seed}():\n    found = {smallest!r}")
        print(f'    assert {judged}.outcome != "wrong"\n', flush=True)

    def report(self) -> str:
        """Say what was covered, and what least."""
        runs = sum(self.outcomes.values())
        lines = [
            f"{runs} drawn up to seed {self.seed - 1}, {self.deep} programs of depth 3 or more, "
            f"{self.steps} steps, {self.seconds:.0f} s of processor; wrong: {self.wrong}",
            f"{len(self.coverage.cells)} combinations of verb, type, shape, bound and protocol, "
            f"of which {len(self.coverage.refused)} refused by name",
        ]
        lines += [f"  {name} {count}" for name, count in sorted(self.outcomes.items())]
        for protocol in (one for one in self.ways if one in PROTOCOLS):
            least = list(self.coverage.by_verb(protocol).items())[:4]
            lines.append(f"  {protocol}, least: " + ", ".join(f"{n} {c}" for n, c in least))
        return "\n".join(lines)
