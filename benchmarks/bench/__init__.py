"""The harness of the benchmarks: cases, peers, measuring in turns, and the report."""

from bench.case import Case, InlinePeer, NotMeasured, Peer, VenvPeer
from bench.measure import Progress, list_benchmarks, load_cases, run_benchmark
from bench.peers import Worker, prepare_environment
from bench.report import Machine, Report, Row, Spread, describe_machine, render

__all__ = [
    "Case",
    "InlinePeer",
    "Machine",
    "NotMeasured",
    "Peer",
    "Progress",
    "Report",
    "Row",
    "Spread",
    "VenvPeer",
    "Worker",
    "describe_machine",
    "list_benchmarks",
    "load_cases",
    "prepare_environment",
    "render",
    "run_benchmark",
]
