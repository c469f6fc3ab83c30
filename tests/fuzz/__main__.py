"""`make fuzz MINUTES=10`: draw programs and modules, run them, and report what is wrong.

    python -m fuzz --minutes 10 [--from SEED] [--protocols sealed permuted3] [--state FILE] [--stop]

What fails is cut down and printed as a test. With a state file a campaign goes on where it stopped;
the file counts what was drawn, and which combinations of verb, type, shape, bound and protocol.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from fuzz.campaign import WAYS, Campaign


def main() -> int:
    """Run a part of a campaign; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--stop", action="store_true", help="at the first that is wrong")
    parser.add_argument("--state", type=Path, help="where a campaign is kept")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    is_new = asked.state is None or not asked.state.exists()
    kept = {"next": asked.first} if is_new else json.loads(asked.state.read_text())
    campaign, end = Campaign.of(kept, asked.ways), time.monotonic() + 60 * asked.minutes
    print(f"seeds from {campaign.seed}", flush=True)
    while time.monotonic() < end and not (campaign.wrong and asked.stop):
        campaign.go_on()
        if asked.state is not None and campaign.seed % 100 == 0:
            asked.state.write_text(json.dumps(campaign.kept()))
    if asked.state is not None:
        asked.state.write_text(json.dumps(campaign.kept()))
    print(campaign.report())
    return 1 if campaign.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
