"""Functions computed by a helper who sees permuted values."""
