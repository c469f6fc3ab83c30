"""Material of one run in files, as a dealer and two parties make them."""

from contextlib import ExitStack, contextmanager
from dataclasses import replace

from harness import ALICE, BOB, CAROL, MEETING
from tacit.mpc import OpeningCache, compute, deal_ahead
from tacit.mpc.material.offline import (
    MaterialFacts,
    body_bytes,
    material_key,
    open_material,
    store,
    write_material,
)
from tacit.party import Meeting, run_threads
from tacit.ring import Prg

TWO = Meeting(parties=(ALICE, BOB), job_digest=b"j" * 32, patience=MEETING.patience)
NAME = "one run"


def prepared(plan, folder):
    """Deal for a plan, and return both files."""
    paths = {me: folder / f"{me}.material" for me in (ALICE, BOB)}

    def facts(me):
        body = body_bytes(plan) if me == BOB else 0
        about = {"plans": plan.digest().hex(), "about": ""}
        return MaterialFacts(identity=NAME, party=me, body_bytes=body, **about)

    def party(session):
        if session.me == CAROL:
            keys = {one: Prg(material_key(session.shared(one), NAME)) for one in session.peers}
            deal_ahead(replace(session, generators=keys), plan, run=0, cache=OpeningCache())
            return
        me, key = session.me, material_key(session.shared(CAROL), NAME)
        with write_material(paths[me], facts(me), key) as writer:
            if me == BOB:
                store(session, plan, run=0, writer=writer)

    run_threads(dict.fromkeys((ALICE, BOB, CAROL), party), MEETING)
    return paths


@contextmanager
def begun(path, me):
    """Open a file and begin it."""
    with open_material(path, me=me) as material:
        material.begin()
        yield material


def run_on(plan, program, files, inputs):
    """Run a plan between two parties on their files."""

    def party(session):
        with ExitStack() as stack:
            material = stack.enter_context(begun(files[session.me], session.me))
            return compute(session, plan, program, inputs=inputs, material=material)

    return run_threads(dict.fromkeys((ALICE, BOB), party), TWO)
