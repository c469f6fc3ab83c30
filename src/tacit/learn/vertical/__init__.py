"""Data whose columns lie with different owners: finding the rows they have in common."""

from tacit.learn.vertical.align import align_rows

__all__ = ["align_rows"]
