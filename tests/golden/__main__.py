"""`python -m golden [--write] [NAME …]`, run inside tests/: what every case does, beside the files.

Without names all cases of the slice are run, with --all the slow ones too. With --write the files
are written anew: a change of one is a change of behaviour, and its commit says why.
"""

import argparse
import sys
import time
import traceback

import torch

from golden.cases import SLICE
from golden.record import CASES, difference, forgotten, run, write


def main() -> int:
    """Run cases; 1 if one differs and is not written."""
    parser = argparse.ArgumentParser(prog="golden", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="cases, or words that their names begin with")
    parser.add_argument("--all", action="store_true", help="the slow ones too")
    parser.add_argument("--write", action="store_true", help="write the files anew")
    asked = parser.parse_args()
    torch.manual_seed(0)
    names = CASES if asked.all else SLICE
    if asked.names:
        # A file's name will do for that of its case.
        wanted = [one.removesuffix(".json").replace("-", " ") for one in asked.names]
        for one in wanted:
            if not any(case.replace("-", " ").startswith(one) for case in CASES):
                parser.error(f"no case begins with {one!r}; there are {', '.join(CASES)}")
        names = [one for one in CASES if one.replace("-", " ").startswith(tuple(wanted))]
    wrong = 0
    for name in names:
        begun = time.process_time()
        try:
            text = run(name)
        except Exception:
            traceback.print_exc()
            print(f"{name}: fails", flush=True)
            wrong += 1
            continue
        found = difference(name, text)
        said = "differs" if found else "as written"
        if found and asked.write:
            write(name, text)
            said = "written"
        print(f"{name}: {said} ({time.process_time() - begun:.1f} s of processor)", flush=True)
        if said == "differs":
            wrong += 1
            print(found)
    for file in forgotten():
        print(f"{file.name}: of no case" + ("; removed" if asked.write else ""))
        wrong += not asked.write
        if asked.write:
            file.unlink()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
