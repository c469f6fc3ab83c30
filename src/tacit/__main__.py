"""Run the command line as ``python -m tacit``."""

from tacit.cli.main import entry

if __name__ == "__main__":
    entry()
