"""Random programs under every protocol, against double precision: see docs/howto/fuzzing.md."""
