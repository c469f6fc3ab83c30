"""Learners on ciphertexts: who holds labels and who hold columns exchange encrypted sums."""
