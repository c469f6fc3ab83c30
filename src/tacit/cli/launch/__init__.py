"""Parties as processes: on this machine, on their own hosts, for as long as users come."""
