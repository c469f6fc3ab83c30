"""Local search for counterexamples; nothing is proved here."""
