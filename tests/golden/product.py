"""All that golden cases know of tacit's inside: when rooms move, imports here move with them."""

from tacit.cli.commands.ask import ask
from tacit.cli.environment import data_folders
from tacit.cli.screen import OnConsole
from tacit.crypto import make_identity
from tacit.dp import Accountant, event_to_record
from tacit.errors import InputError, TacitError
from tacit.federated import AGGREGATORS
from tacit.jobs.config import shared_content
from tacit.jobs.kind import Asked, Place
from tacit.jobs.kinds import KINDS, kind_of, load_job, read_job
from tacit.jobs.serve import serve_here
from tacit.jobs.toml import read_toml, write_toml
from tacit.nn.code import allow
from tacit.party import Meeting, Progress, Session, Usage, merge_results, run_threads
from tacit.result import Claim, Cost, Forecast, Leak, Metric, Result
from tacit.spec import LOCAL, ListedError, describe_type, strip_type
from tacit.transport import Meter, Patience, memory_pair

LINK = type(memory_pair("a", "b", meter_a=Meter("a"), meter_b=Meter("b"))[0])
"""The class of all links: of threads, and of processes."""

__all__ = [
    "AGGREGATORS",
    "KINDS",
    "LINK",
    "LOCAL",
    "Accountant",
    "Asked",
    "Claim",
    "Cost",
    "Forecast",
    "InputError",
    "Leak",
    "ListedError",
    "Meeting",
    "Metric",
    "OnConsole",
    "Patience",
    "Place",
    "Progress",
    "Result",
    "Session",
    "TacitError",
    "Usage",
    "allow",
    "ask",
    "data_folders",
    "describe_type",
    "event_to_record",
    "kind_of",
    "load_job",
    "make_identity",
    "merge_results",
    "read_job",
    "read_toml",
    "run_threads",
    "serve_here",
    "shared_content",
    "strip_type",
    "write_toml",
]
