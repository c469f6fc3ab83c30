"""What a federated job will do, before it does."""

from tacit.federated import summary
from tacit.federated.front import rehearse
from tacit.federated.spec import HELPERS
from tacit.jobs.federated_data import task_of
from tacit.jobs.federated_job import FederatedJob
from tacit.jobs.kind import Asked, Outlook


def forecast_federated(job: FederatedJob, asked: Asked) -> Outlook:
    """Rehearse one round, in which every client trains one step and nobody drops out."""
    asked.refuse("rows", "features")
    task = task_of(job, asked.search)
    config, up, down, (sent, received) = rehearse(task)
    far = task.load().state_far()
    rounds, clients = task.spec.rounds, config.clients
    name = HELPERS.get(task.spec.aggregator)
    helper = f"The {name} sends {sent:,} B and receives {received:,} B in a round."
    return Outlook(
        about=f"{job.federated.aggregator}, privacy {job.privacy.kind}",
        lines=(
            f"{clients} clients, {rounds} rounds, {config.parameters:,} parameters",
            f"A client sends {up:,.0f} B and receives {down:,.0f} B in a round, as a rehearsed "
            f"round did; all clients {clients * rounds * (up + down):,.0f} B in all rounds.",
            *([helper] if name else []),
            *([f"Warning: {far}."] if far else []),
            f"After {rounds} rounds: {summary.describe(config.mechanism.claim)}",
        ),
        leaks=summary.leaks_of(task.spec, config.parameters),
        claims=(config.mechanism.claim, *summary.claims_about_updates(task.spec)),
    )
