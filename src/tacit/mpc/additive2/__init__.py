"""Two parties with additive shares modulo 2^64 and a dealer who is gone when they start."""
