"""What sealed passes cost, before they are run."""

from collections.abc import Sequence
from dataclasses import replace

from tacit.llm.claims import Reveal
from tacit.llm.parties import Seats
from tacit.llm.sealed.bounds import bounds_fact
from tacit.llm.sealed.dealing import file_bytes, file_facts, plan_schedule
from tacit.llm.sealed.parties import SealedVault
from tacit.llm.sealed.passes import Pass
from tacit.llm.sealed.program import Passing
from tacit.llm.sealed.schedule import Schedule
from tacit.llm.sealed.table import GAIN, plan_pass
from tacit.llm.sealed.talk import leaks_of_pass
from tacit.mpc import OpeningCache, Plan
from tacit.party import merge
from tacit.result import Leak


def plan_passes(vault: SealedVault, passes: Sequence[Pass]) -> tuple[Plan, ...]:
    """Plan the passes of a session in their order; the first also opens the weights under masks.

    Cost: 0 rounds, 0 bits.
    """
    seats, cache = Seats(), OpeningCache()
    passing, plans = _passing(vault, seats), []
    for number, step in enumerate(passes):
        plan = plan_pass(passing, step, seats, cache)
        cache.keep(number, plan.kept_openings, {}, {})
        plans.append(plan)
    return tuple(plans)


def foresee(
    vault: SealedVault, passes: Sequence[Pass], plans: Sequence[Plan], *, reveal: Reveal = "token"
) -> tuple[Leak, ...]:
    """List what a session with these passes, as `plan_passes` plans them, tells everyone."""
    seats = Seats()
    parties = (seats.owner, seats.user, seats.dealer)
    told = bounds_fact(vault.architecture).leaks(seats.owner, parties)
    told += GAIN.leaks(seats.owner, parties)
    return merge(
        (
            *told,
            *(leak for step in passes for leak in leaks_of_pass(step, reveal, seats, parties)),
            *(leak for plan in plans for leak in plan.leaks),
        )
    )


def forecast_file(vault: SealedVault, schedule: Schedule) -> int:
    """Return how large the user's file of a session that is dealt ahead will be.

    Cost: 0 rounds, 0 bits.
    """
    seats = Seats()
    passing = replace(_passing(vault, seats), is_dealt=True)
    plans = plan_schedule(passing, schedule, seats)
    return file_bytes(file_facts(schedule, plans, passing, seats.user))


def _passing(vault: SealedVault, seats: Seats) -> Passing:
    return Passing(
        architecture=vault.architecture,
        bounds=vault.bounds,
        gain_bits=vault.gain,
        reveal=vault.reveal,
        owner=seats.owner,
        user=seats.user,
        dealer=seats.dealer,
    )
