"""Proofs: what they are, how they are written, and an independent checker."""
