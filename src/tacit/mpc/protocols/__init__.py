"""The protocols, a folder each; `tacit.mpc.registry` finds them by name."""
