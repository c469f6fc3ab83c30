"""Values that someone sees in random order: the order, what is seen, and what hides more."""
