"""The command line: job files, wiring, progress on the screen, exit codes."""
