"""Functions computed by the second party, who sees permuted values; the dealer is offline."""
