"""Parties: a session with the others, and ways to start them."""

from tacit.party.cost import merge_costs, merge_results, without_setup
from tacit.party.enclave import (
    Enclave,
    SimulatedEnclave,
    attest_all,
    check_quote,
    measure,
    seal_file,
    unseal_file,
)
from tacit.party.join import Meeting, blame, joined, session_over
from tacit.party.ledger import Fact, LeakLedger, merge
from tacit.party.local import first_cause, run_processes, run_threads, session_beside
from tacit.party.processes import (
    Child,
    Companions,
    Event,
    StatusPipe,
    companions,
    python_command,
    supervise,
    watch_parent,
)
from tacit.party.progress import Listener, Progress, Usage, without_collections
from tacit.party.session import LARGEST_MESSAGE_BYTES, Session, open_session

__all__ = [
    "LARGEST_MESSAGE_BYTES",
    "Child",
    "Companions",
    "Enclave",
    "Event",
    "Fact",
    "LeakLedger",
    "Listener",
    "Meeting",
    "Progress",
    "Session",
    "SimulatedEnclave",
    "StatusPipe",
    "Usage",
    "attest_all",
    "blame",
    "check_quote",
    "companions",
    "first_cause",
    "joined",
    "measure",
    "merge",
    "merge_costs",
    "merge_results",
    "open_session",
    "python_command",
    "run_processes",
    "run_threads",
    "seal_file",
    "session_beside",
    "session_over",
    "supervise",
    "unseal_file",
    "watch_parent",
    "without_collections",
    "without_setup",
]
