"""Two parties without a third: oblivious transfer, garbled circuits, lattices."""
