"""Test vectors that others made, read from where they are staged; without them the tests skip."""
