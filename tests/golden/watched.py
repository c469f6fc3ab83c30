"""A program under watch, for a process of its own: `watched.py FILE SCRIPT …`, or tacit for SCRIPT.

What it sends, writes into its ledger and prints goes into FILE.
"""

import json
import runpy
import sys
from contextlib import suppress
from pathlib import Path

from golden.watch import Watch


def main() -> None:
    """Run it and write down what it did."""
    file, script, *words = sys.argv[1:]
    sys.argv = [script, *words]
    with Watch() as watch, suppress(SystemExit):
        if script == "tacit":
            runpy.run_module("tacit", run_name="__main__")
        else:
            runpy.run_path(script, run_name="__main__")
    Path(file).write_text(json.dumps(watch.seen()), encoding="utf-8")


if __name__ == "__main__":
    main()
