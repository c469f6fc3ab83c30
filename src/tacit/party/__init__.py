"""Parties: a session with the others, and ways to start them."""

from tacit.party.apart import run_processes
from tacit.party.child_parties import Companions, companions
from tacit.party.collecting import without_collections
from tacit.party.cost import merge_costs, without_setup
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
from tacit.party.processes import (
    Child,
    Event,
    ProcessEnd,
    StatusPipe,
    python_command,
    supervise,
    watch_parent,
)
from tacit.party.progress import Listener, Progress
from tacit.party.session import LARGEST_MESSAGE_BYTES, Session, open_session
from tacit.party.threads import first_cause, run_threads, session_beside
from tacit.party.usage import Usage
from tacit.party.views import merge_results

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
    "ProcessEnd",
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
