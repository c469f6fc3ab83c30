"""A sealed chat whose material was dealt before, in files."""

from dataclasses import replace

from private_llm import MEETING
from tacit.llm.sealed import (
    SealedClient,
    open_sealed_vault,
    serve_dealt_owner,
    serve_sealed_dealer,
    serve_sealed_owner,
)
from tacit.llm.sealed.schedule import Schedule
from tacit.mpc.material.offline import open_material
from tacit.party import run_threads

TWO = replace(MEETING, parties=("owner", "user"))


def deal(model, at, *, prompt=4, tokens=6, reveal="token", vault=None, folder="owner"):
    """Have the three meet, and return the user's file, the owner's vault and the costs."""
    vault = vault or open_sealed_vault(model, reveal=reveal)
    vault.material = None if folder is None else at / folder
    path = at / "user" / "chat.material"
    foretold = []

    def use(session):
        client = SealedClient(session, model.architecture, reveal=reveal)
        wish = Schedule(prompt=prompt, tokens=tokens)
        client.fetch_material(wish, path, forecast=lambda *told: foretold.append(told))
        client.leave()
        return session.cost()

    def dealing(session):
        serve_sealed_dealer(session, model.architecture, reveal=reveal)
        return session.cost()

    programs = {"owner": lambda s: serve_sealed_owner(s, vault), "user": use, "dealer": dealing}
    costs = run_threads(programs, MEETING)
    return path, vault, (costs, foretold)


def talk_alone(model, vault, path, talk, *, reveal="token", **how):
    """Run a function of a client, with an owner beside it and no dealer."""

    def use(session):
        with open_material(path, me="user") as material:
            client = SealedClient(session, model.architecture, reveal=reveal, material=material)
            found = talk(client)
            client.leave()
            return found, session.ledger.entries()

    programs = {"owner": lambda session: serve_dealt_owner(session, vault), "user": use}
    return run_threads(programs, TWO, **how)["user"]
