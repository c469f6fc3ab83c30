"""Two parties without a third: oblivious transfer, garbled circuits, lattice products."""
