"""Correlated randomness: what a dealer makes, how it reaches who computes, recorded runs."""
