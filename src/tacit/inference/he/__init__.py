"""Models on ciphertexts: a circuit of sums and products, its rings, and two layouts of rows."""
