"""A helper computes non-linear functions on permuted values."""
