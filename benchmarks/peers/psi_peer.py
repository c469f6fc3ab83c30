"""openmined-psi: ``psi_peer.py IDS`` answers ``measure`` with CPU µs per id, both sides together.

Client and server have IDS ids each, half of them in common; nothing is sent.
"""

import importlib
import json
import sys
from time import process_time


def run(count: int) -> float:
    """Match once and return microseconds of processor time per id of both sides."""
    psi = importlib.import_module("private_set_intersection.python")
    mine = [f"id {number}" for number in range(count)]
    theirs = [f"id {number + count // 2}" for number in range(count)]
    begun = process_time()
    client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
    setup = server.CreateSetupMessage(0.001, count, theirs, psi.DataStructure.RAW)
    answer = server.ProcessRequest(client.CreateRequest(mine))
    common = client.GetIntersection(setup, answer)
    seconds = process_time() - begun
    if len(common) != count - count // 2:
        raise SystemExit("openmined-psi found another intersection")
    return 1e6 * seconds / (2 * count)


if __name__ == "__main__":
    size = int(sys.argv[1])
    for line in sys.stdin:
        if line.strip() == "measure":
            print(json.dumps({"value": run(size)}), flush=True)
