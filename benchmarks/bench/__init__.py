"""The harness of the benchmarks: cases, peers, measuring in turns, and the report."""

from bench.case import Case, InlinePeer, NotMeasured, Peer, VenvPeer
from bench.measure import (
    Progress,
    find_benchmark,
    has_cases,
    list_benchmarks,
    load_cases,
    run_benchmark,
)
from bench.peers import Worker, as_program, prepare_environment
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
    "as_program",
    "describe_machine",
    "find_benchmark",
    "has_cases",
    "list_benchmarks",
    "load_cases",
    "prepare_environment",
    "render",
    "run_benchmark",
]
