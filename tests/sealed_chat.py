"""A sealed chat between three parties in one process."""

from private_llm import MEETING
from tacit.llm import Sampling
from tacit.llm.sealed import (
    SealedClient,
    open_sealed_vault,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.party import run_threads

ERROR = 0.05
"""How far sealed scores of the small random models here may be from plain ones."""


def as_user(model, talk, *, reveal="token", vault=None, device="cpu"):
    """Run a function of a sealed client, with an owner and a dealer beside it."""
    vault = vault or open_sealed_vault(model, reveal=reveal)

    def use(session):
        client = SealedClient(session, model.architecture, reveal=reveal, device=device)
        found = talk(client)
        client.leave()
        return found, session.ledger.entries()

    programs = {
        "owner": lambda session: serve_sealed_owner(session, vault, device=device),
        "user": use,
        "dealer": lambda session: serve_sealed_dealer(
            session, model.architecture, reveal=reveal, device=device
        ),
    }
    return run_threads(programs, MEETING)["user"]


def say(client, memory, ids, limit, **sampling):
    return list(client.generate(memory, ids, Sampling(**sampling), limit=limit))
