"""``tacit studio``: a local page to start, watch and compare jobs; it runs what a command runs."""
