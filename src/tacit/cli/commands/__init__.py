"""The commands, as click sees them, and what they print."""
