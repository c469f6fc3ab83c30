"""Functions made of operations, written once for every protocol, and curves for them."""
