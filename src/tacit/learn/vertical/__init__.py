"""Data whose columns lie with different owners: finding the rows they have in common."""

from tacit.learn.vertical.align import (
    align_in_the_clear,
    align_rows,
    announce_ids,
    declare_matching,
    leaks_of_matching,
)
from tacit.learn.vertical.claims import claims_of_matching

__all__ = [
    "align_in_the_clear",
    "align_rows",
    "announce_ids",
    "claims_of_matching",
    "declare_matching",
    "leaks_of_matching",
]
