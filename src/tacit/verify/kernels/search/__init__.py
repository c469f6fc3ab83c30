"""Branch and bound with the bound of dual decomposition."""
