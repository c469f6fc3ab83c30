"""Data whose columns lie with different owners: finding the rows they have in common."""

from tacit.learn.vertical.align import align_rows, announce_ids, declare_matching

__all__ = ["align_rows", "announce_ids", "declare_matching"]
