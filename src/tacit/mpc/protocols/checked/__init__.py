"""`checked`: what `sealed` does, with tags by which a party that cheats is caught."""
