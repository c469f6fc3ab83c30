"""How the views of all parties of one run become one result."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

from tacit.errors import DisagreementError
from tacit.party.cost import merge_costs
from tacit.result import Leak, Result

R = TypeVar("R")


def merge_results(results: tuple[Result, ...]) -> Result:
    """Join the views of all parties of one run into one result."""
    first = results[0]
    for other in results[1:]:
        if other.forecast != first.forecast:
            raise DisagreementError(other.parties[0].name, "reports another plan than the others")
    metered = merge_costs({one.parties[0].name: one.metered for one in results})
    return replace(
        first,
        parties=tuple(party for one in results for party in one.parties),
        metered=metered,
        leakage=_union([one.leakage for one in results]),
        claims=_once(one.claims for one in results),
        utility=_once(one.utility for one in results),
        curves=_once(one.curves for one in results),
        pictures=_once(one.pictures for one in results),
        sheets=_once(one.sheets for one in results),
        notes=_once(one.notes for one in results),
    )


def _once(views: Iterable[tuple[R, ...]]) -> tuple[R, ...]:
    """Join what the parties say, and keep what several of them say once."""
    return tuple(dict.fromkeys(item for view in views for item in view))


def _union(ledgers: list[tuple[Leak, ...]]) -> tuple[Leak, ...]:
    """Keep each entry once: the parties to a revelation all write it into their own ledger."""
    seen: dict[tuple[str, str, str, str], Leak] = {}
    for leak in (leak for ledger in ledgers for leak in ledger):
        key = (leak.to, leak.what, leak.why, leak.kind)
        if key not in seen or seen[key].elements < leak.elements:
            seen[key] = leak
    return tuple(seen.values())
