"""Job files: one kind each, what it reads, promises and runs."""
