"""Kernels on additive shares that every protocol starts from: sums, products, truncation."""
