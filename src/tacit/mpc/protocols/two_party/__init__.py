"""Correlated randomness that two parties make with each other, so that there is no dealer."""
