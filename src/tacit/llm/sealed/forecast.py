"""What sealed passes cost, before they are run."""

from collections.abc import Sequence

from tacit.llm.permuted.seats import Seats
from tacit.llm.sealed.parties import SealedVault
from tacit.llm.sealed.passes import Pass
from tacit.llm.sealed.program import Passing
from tacit.llm.sealed.table import plan_pass
from tacit.mpc import OpeningCache, Plan


def plan_passes(vault: SealedVault, passes: Sequence[Pass]) -> tuple[Plan, ...]:
    """Plan the passes of a session in their order; the first also opens the weights under masks.

    Cost: 0 rounds, 0 bits.
    """
    seats, cache = Seats(), OpeningCache()
    passing = Passing(
        architecture=vault.architecture,
        bounds=vault.bounds,
        gain_bits=vault.gain,
        reveal=vault.reveal,
        owner=seats.owner,
        user=seats.user,
        dealer=seats.dealer,
    )
    plans = []
    for number, step in enumerate(passes):
        plan = plan_pass(passing, step, seats, cache)
        cache.keep(number, plan.kept_openings, {}, {})
        plans.append(plan)
    return tuple(plans)
