"""Benchmarks: find them, load their cases, and measure us and our peers in turns."""

import ast
import difflib
import importlib.util
import itertools
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.case import OURS, Case, InlinePeer, NotMeasured, Peer, VenvPeer
from bench.peers import Worker, prepare_environment
from bench.report import Report, Row, Spread, describe_machine
from tacit.errors import ConfigError

Progress = Callable[[str, int, int], None]
"""Is told what is done now, how many steps are done, and how many there are."""

Measure = Callable[[], float]
Environments = dict[str, Path | NotMeasured]


def list_benchmarks(directory: Path) -> dict[str, str]:
    """Return the first sentence of every benchmark, by its room and name."""
    found = {}
    for file in sorted(directory.glob("*/[!_]*.py")):
        if file.parent.name not in ("bench", "peers"):
            said = ast.get_docstring(_parse(file)) or ""
            found[f"{file.parent.name}/{file.stem}"] = said.partition("\n")[0]
    return found


def has_cases(file: Path) -> bool:
    """Tell whether a file defines ``cases``, for the harness to measure."""
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "cases" for node in _parse(file).body
    )


def find_benchmark(name: str, directory: Path) -> Path:
    """Return the file of a benchmark, or of what only others start.

    Raises:
        ConfigError: there is none.
    """
    file = directory / f"{name}.py"
    if file.is_file():
        return file
    known = list_benchmarks(directory)
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    available = ", ".join(known) or "none"
    raise ConfigError(f"no benchmark {name!r} in {directory}; available: {available}{hint}")


def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def load_cases(name: str, directory: Path, quick: bool) -> list[Case]:
    """Import ``directory/name.py`` and call its ``cases(quick)``.

    Raises:
        ConfigError: no such benchmark, or one that defines no ``cases``.
    """
    file = find_benchmark(name, directory)
    if not has_cases(file):
        raise ConfigError(f"{file} defines no cases(quick): it is a program of its own")
    module_name = f"tacit_benchmark_{name.replace('/', '_')}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look up their own module
    spec.loader.exec_module(module)
    return list(module.cases(quick))


def run_benchmark(
    name: str,
    cases: Sequence[Case],
    *,
    repeats: int,
    peers: bool,
    progress: Progress,
    directory: Path,
) -> Report:
    """Measure every case, ours and the peers' in turns, so that a busy moment hits all alike.

    Args:
        name: the benchmark's name, for the report.
        cases: what to measure.
        repeats: measurements per contender, after one that is thrown away.
        peers: run the peers that need an environment of their own; inline peers always run.
        progress: is called before every measurement.
        directory: the environments lie in ``.peers`` below it.

    Raises:
        ConfigError: nothing to measure, peers that contradict each other, or a measurement of ours
            that is not a number.
    """
    if repeats < 1 or not cases:
        raise ConfigError(f"wanted at least one case and one repeat, got {len(cases)}, {repeats}")
    venv_peers = _venv_peers(cases) if peers else {}
    environments = _prepare(venv_peers, directory, progress)
    sides = sum(1 + sum(_runs(peer, environments) for peer in case.peers) for case in cases)
    steps, total = itertools.count(), sides * (repeats + 1)

    def announce(what: str) -> None:
        progress(what, next(steps), total)

    rows = tuple(_measure_case(case, repeats, environments, announce) for case in cases)
    progress("done", total, total)
    return Report(name=name, machine=describe_machine(), repeats=repeats, rows=rows)


def _venv_peers(cases: Sequence[Case]) -> dict[str, VenvPeer]:
    found: dict[str, VenvPeer] = {}
    for peer in (peer for case in cases for peer in case.peers if isinstance(peer, VenvPeer)):
        first = found.setdefault(peer.name, peer)
        if (first.requirements, first.pip_arguments) != (peer.requirements, peer.pip_arguments):
            raise ConfigError(
                f"peer {peer.name!r} is given with two lists of requirements, "
                f"{first.requirements} and {peer.requirements}; use two names"
            )
    return found


def _prepare(venv_peers: dict[str, VenvPeer], directory: Path, progress: Progress) -> Environments:
    made: Environments = {}
    for done, (name, peer) in enumerate(venv_peers.items()):
        progress(f"preparing {name}", done, len(venv_peers))
        try:
            made[name] = prepare_environment(peer, directory / ".peers")
        except NotMeasured as reason:
            made[name] = reason
    return made


def _runs(peer: Peer, environments: Environments) -> bool:
    return isinstance(peer, InlinePeer) or isinstance(environments.get(peer.name), Path)


def _measure_case(
    case: Case, repeats: int, environments: Environments, announce: Callable[[str], None]
) -> Row:
    why_not = {
        peer.name: str(environments.get(peer.name, "run with --peers"))
        for peer in case.peers
        if not _runs(peer, environments)
    }
    samples: dict[str, list[float]] = {}
    with ExitStack() as workers:
        contenders = dict(_contenders(case, environments, workers))
        for round_number in range(repeats + 1):
            for name, measure in contenders.items():
                announce(f"{case.name}: {name}")
                if name in why_not:
                    continue
                try:
                    value = _checked(case, name, measure())
                except NotMeasured as reason:
                    why_not[name] = str(reason)
                    continue
                if round_number > 0:
                    samples.setdefault(name, []).append(value)
    spreads = {name: _spread(values) for name, values in samples.items() if name not in why_not}
    return _compare(case, spreads, why_not)


def _contenders(
    case: Case, environments: Environments, workers: ExitStack
) -> Iterator[tuple[str, Measure]]:
    yield OURS, case.ours
    for peer in case.peers:
        if isinstance(peer, InlinePeer):
            yield peer.name, peer.measure
        elif isinstance(python := environments.get(peer.name), Path):
            worker = Worker([str(python), str(peer.script), *peer.arguments])
            yield peer.name, workers.enter_context(worker).measure


def _checked(case: Case, name: str, value: float) -> float:
    if math.isfinite(value) and value >= 0:
        return float(value)
    if name == OURS:
        raise ConfigError(f"case {case.name!r}: wanted a finite value, at least 0, got {value}")
    raise NotMeasured(f"it gave {value}, wanted a finite value, at least 0")


def _spread(values: list[float]) -> Spread:
    return Spread(median=statistics.median(values), low=min(values), high=max(values))


def _compare(case: Case, spreads: dict[str, Spread], why_not: dict[str, str]) -> Row:
    ours = spreads.get(OURS)
    theirs = {peer.name: spreads.get(peer.name) for peer in case.peers}
    ratio = _ratio(case, ours, [spread for spread in theirs.values() if spread])
    return Row(
        case=case.name,
        metric=case.metric,
        unit=case.unit,
        higher_is_better=case.higher_is_better,
        tacit=ours,
        peers=theirs,
        ratio=ratio,
        goal=case.goal,
        goal_on="ratio" if case.peers else "value",
        met=_met(case, ours, ratio),
        why_not=why_not,
    )


def _ratio(case: Case, ours: Spread | None, theirs: list[Spread]) -> float | None:
    """Compare medians so that less is better; None where a zero leaves nothing to compare."""
    if ours is None or not theirs:
        return None
    medians = [spread.median for spread in theirs]
    if case.higher_is_better:
        return max(medians) / ours.median if ours.median else None
    return ours.median / min(medians) if min(medians) else None


def _met(case: Case, ours: Spread | None, ratio: float | None) -> bool | None:
    if case.goal is None or ours is None:
        return None
    if case.peers:
        return None if ratio is None else ratio <= case.goal
    return ours.median >= case.goal if case.higher_is_better else ours.median <= case.goal
