"""`checked`: the sealed protocol with tags of the dealer's, so that a party that cheats is caught."""
