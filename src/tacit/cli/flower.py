"""The two apps of a federated job on real Flower nodes.

The job file lies on every node; its path is the value ``job`` in the node's config (clients) or in
the run's config (server). A client trains on the rows of its own file.
"""

from dataclasses import replace
from pathlib import Path

from flwr.app import Context

from tacit.cli.environment import data_folders
from tacit.cli.launch.member import write_files
from tacit.errors import ConfigError
from tacit.federated import Outcome, Shards, Task
from tacit.federated.apps import deploy_client, deploy_server
from tacit.federated.front import task_of
from tacit.jobs.federated import FederatedJob, files_of
from tacit.jobs.toml import read_toml
from tacit.spec import read_record

__all__ = ["client_app", "server_app"]


def _load(path: object) -> FederatedJob:
    file = Path(str(path))
    return read_record(read_toml(file), FederatedJob, source=str(file))


def _node(context: Context) -> tuple[Task, Path | None]:
    job = _load(context.node_config["job"])
    task = task_of(job, data_folders(), clients=1)
    book = None if job.data.file is None else Path(f"{job.data.file}.ledger")
    return replace(task, load=_refuse) if job.data.files else task, book


def _refuse() -> Shards:
    raise ConfigError("data.files is for simulated clients: a node names its rows in data.file")


def _task(context: Context) -> Task:
    return task_of(_load(context.run_config["job"]), data_folders(), clients=1)


def _finish(context: Context, task: Task, outcome: Outcome) -> None:
    """Write ledger, rounds and weights to the folder ``out`` of the run's config."""
    out = Path(str(context.run_config["out"]))
    out.mkdir(parents=True, exist_ok=True)
    name = _load(context.run_config["job"]).job.name
    write_files(files_of(name, task, outcome), out)


client_app = deploy_client(_node)
server_app = deploy_server(_task, _finish)
