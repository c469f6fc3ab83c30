"""Dealing ahead: the material of a whole session of a sealed chat, into a file at each side."""

import hashlib
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from tacit import ring
from tacit.errors import DataError, FrameError
from tacit.llm.parties import Seats
from tacit.llm.sealed.bounds import FRAC_BITS
from tacit.llm.sealed.choosing import gumbel
from tacit.llm.sealed.program import Passing
from tacit.llm.sealed.schedule import Schedule
from tacit.llm.sealed.table import Table, plan_all
from tacit.mpc import OpeningCache, Plan, deal_ahead
from tacit.mpc.material.offline import (
    TAG_BYTES,
    MaterialFacts,
    body_bytes,
    check_new,
    head_bytes,
    material_key,
    store,
    write_material,
)
from tacit.mpc.narrow import WORD_BYTES
from tacit.party import Session
from tacit.result import Leak
from tacit.ring import Prg

_MOST_UNUSED = 64
"""Sessions for which one user may have material at an owner, and not have used it."""
NOISE = "noise {}"
"""Labels the noise of a run, by its number."""


def deal_material(table: Table, schedule: Schedule, *, device: str = "cpu") -> None:
    """Deal for a whole session that comes later, as its dealer.

    Guarantee: that of `tacit.mpc.material.dealer.deal`; the dealer learns for how many tokens.
    Cost: what the plans say offline, to the user; nothing to the owner.
    """
    passing, plans = _agreed(table, schedule)
    inner, cache = _inner(table, schedule), OpeningCache(weights_on=device)
    noise = set(noisy(schedule, passing))
    for number, (step, plan) in enumerate(zip(schedule.passes(), plans, strict=True)):
        if number in noise:
            words = _noise_share(inner, table.seats, passing, number)
            inner.send(table.seats.user, f"deal/noise.{number}", words, phase="offline")
        cache.place(step.conversation, step.past)
        deal_ahead(inner, plan, run=number, cache=cache)
        _done(table, schedule, number)


def keep_material(table: Table, schedule: Schedule, *, folder: Path | None) -> None:
    """Write the owner's file of a session that comes later: a key, from which all is drawn.

    Raises:
        FrameError: nothing is kept here, or the user has not used what it has.
        DataError: material of this identity was dealt before, or cannot be written.
    """
    user = table.seats.user
    if folder is None:
        raise FrameError(user, "asks for material in files, which this owner does not keep")
    found = folder.glob("*.material")  # none, if there is no folder yet
    unused = [one for one in found if not one.with_name(one.name + ".used").exists()]
    if len(unused) >= _MOST_UNUSED:
        raise FrameError(user, f"has material for {len(unused)} sessions here: use it first")
    path = owner_file(folder, schedule)
    check_new(path)  # before all agree, and the dealer deals
    passing, plans = _agreed(table, schedule)
    facts = file_facts(schedule, plans, passing, table.seats.owner)
    key = material_key(table.session.shared(table.seats.dealer), schedule.name)
    with write_material(path, facts, key):
        pass
    try:
        for number in range(len(plans)):
            _done(table, schedule, number)
    except BaseException:
        with suppress(OSError):
            path.unlink()  # the user has none of it, or no whole file
        raise


def fetch_material(
    table: Table,
    schedule: Schedule,
    path: Path,
    *,
    forecast: Callable[[int, int], None] = lambda size, passes: None,
) -> int:
    """Have material dealt, and write the user's file: a key, and the dealer's corrections.

    Args:
        table: a session of the three.
        schedule: for what.
        path: of the file.
        forecast: told how large it will be, and for how many passes, before anybody is asked.

    Returns:
        The size of the file, which is the one that was forecast.

    Raises:
        ConfigError: this cannot be dealt ahead.
        DataError: there is such a file, or no room for it on the disk.
    """
    schedule.check(table.passing.architecture)
    passing, plans = planned(table, schedule)
    user, session = table.seats.user, table.session
    facts = file_facts(schedule, plans, passing, user)
    size = file_bytes(facts)
    forecast(size, len(plans))
    noise = set(noisy(schedule, passing))
    inner = _inner(table, schedule)
    key = material_key(session.shared(table.seats.dealer), schedule.name)
    with write_material(path, facts, key) as writer:
        free = shutil.disk_usage(path.parent).free
        if free < size:
            raise DataError(
                f"the file would have {size:,} bytes, and {free:,} are free in {path.parent}: "
                "have less dealt, or choose another disk"
            )
        table.request_material(schedule)
        _note_size(table, schedule)
        _agree(table, schedule, plans)
        with session.progress.stage("deal", len(plans)) as advance:
            for number, plan in enumerate(plans):
                if number in noise:
                    shape = (passing.architecture.vocab,)
                    words = session.recv(table.seats.dealer, f"deal/noise.{number}", shape)
                    writer.add(NOISE.format(number), words)
                store(inner, plan, run=number, writer=writer)
                _done(table, schedule, number)
                advance(number + 1)
    return size


def _note_size(table: Table, schedule: Schedule) -> None:
    for peer in (table.seats.owner, table.seats.dealer):
        table.session.ledger.record(
            Leak(
                to=peer,
                what="for how many tokens material was dealt",
                why="sizes are not hidden",
                kind="size",
                elements=schedule.prompt + schedule.tokens,
            )
        )


def planned(table: Table, schedule: Schedule) -> tuple[Passing, tuple[Plan, ...]]:
    """Plan a session without a dealer."""
    passing = replace(table.passing, is_dealt=True)
    return passing, plan_all(passing, schedule.passes())


def owner_file(folder: Path, schedule: Schedule) -> Path:
    """Return where the owner keeps its part."""
    return folder / f"{schedule.name}.material"


def _agreed(table: Table, schedule: Schedule) -> tuple[Passing, tuple[Plan, ...]]:
    passing, plans = planned(table, schedule)
    _agree(table, schedule, plans)
    return passing, plans


def _agree(table: Table, schedule: Schedule, plans: Sequence[Plan]) -> None:
    text = f"{schedule!r} {digest_plans(plans)}"
    table.session.agree("plan", hashlib.sha256(text.encode()).digest())


def _done(table: Table, schedule: Schedule, number: int) -> None:
    """Wait until all have what was dealt for a pass, so that nobody waits for long in silence."""
    text = f"{schedule.name} {number}"
    table.session.agree("dealt", hashlib.sha256(text.encode()).digest())


def _inner(table: Table, schedule: Schedule) -> Session:
    """Return the session with generators of the files' own: no run of it draws from them."""
    peers = (table.seats.owner, table.seats.user, table.seats.dealer)
    generators = {
        peer: Prg(material_key(table.session.shared(peer), schedule.name))
        for peer in peers
        if peer != table.session.me
    }
    return replace(table.session, generators=generators)


def _noise_share(inner: Session, seats: Seats, passing: Passing, number: int) -> Tensor:
    """Draw noise, and return the user's share of it; the owner draws its own from its key."""
    vocab = passing.architecture.vocab
    words = ring.encode(gumbel(Prg.from_os(), vocab), frac_bits=FRAC_BITS).reshape(-1)
    return words - inner.shared(seats.owner).fork(NOISE.format(number)).words((vocab,))


def digest_plans(plans: Sequence[Plan]) -> str:
    """Hash what all passes will do, in their order."""
    known, digest = dict[int, bytes](), hashlib.sha256()
    for plan in plans:
        if id(plan) not in known:
            known[id(plan)] = plan.digest()
        digest.update(known[id(plan)])
    return digest.hexdigest()


def file_facts(
    schedule: Schedule, plans: Sequence[Plan], passing: Passing, party: str
) -> MaterialFacts:
    """Say what a party's file holds."""
    body = 0
    if party == passing.seats.user:
        sizes = {id(plan): body_bytes(plan) for plan in plans}
        body = sum(sizes[id(plan)] for plan in plans)
        body += len(noisy(schedule, passing)) * (
            WORD_BYTES * passing.architecture.vocab + TAG_BYTES
        )
    return MaterialFacts(
        identity=schedule.name,
        party=party,
        plans=digest_plans(plans),
        about=schedule.about(),
        body_bytes=body,
    )


def file_bytes(facts: MaterialFacts) -> int:
    """Return how large a file is."""
    return head_bytes(facts) + facts.body_bytes


def noisy(schedule: Schedule, passing: Passing) -> list[int]:
    """List the passes whose token the dealer's noise draws."""
    if passing.reveal != "sample":
        return []
    return [at for at, step in enumerate(schedule.passes()) if step.is_scored]
