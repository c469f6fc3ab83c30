"""Two parties without a third: oblivious transfer, garbled circuits, products under a lattice key."""
