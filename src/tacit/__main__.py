"""Run the command line as ``python -m tacit``."""

import sys


def main() -> None:
    """Run the command line; an interrupt is answered in words from the first moment on."""
    try:
        from tacit.cli.main import entry
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)  # noqa: T201 - there is no console yet
        sys.exit(130)
    entry()


if __name__ == "__main__":
    main()
