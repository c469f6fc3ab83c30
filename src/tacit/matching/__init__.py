"""Matching of ids: parties find the rows that they have in common, and show no others."""

from tacit.matching.align import (
    align_in_the_clear,
    align_rows,
    announce_ids,
    claims_of_matching,
    declare_matching,
    leaks_of_matching,
)

__all__ = [
    "align_in_the_clear",
    "align_rows",
    "announce_ids",
    "claims_of_matching",
    "declare_matching",
    "leaks_of_matching",
]
