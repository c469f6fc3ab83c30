"""A private program between hosts: every party runs this file and has the same parties.toml.

    python program_between_hosts.py --as north      with north.txt: its five numbers
    python program_between_hosts.py --as south      with south.txt
    python program_between_hosts.py --as dealer

parties.toml holds what `tacit keys NAME` prints at each of them, and addresses. Prints who we are
and, at the two owners, the sum of products.
"""

import argparse
import hashlib
import tomllib
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from tacit.crypto import load_identity
from tacit.mpc import PROTOCOLS, Roles, compute, make_plan, serve
from tacit.party import Meeting, Progress, joined
from tacit.transport import Peer, listen

ROLES = Roles(first="north", second="south", dealer="dealer")
NUMBERS = {"north": "x", "south": "y"}


def covariance(ops):
    """Add up the products of two columns that belong to different owners."""
    x = ops.input("x", owner="north", shape=(5,), bound=8.0)
    y = ops.input("y", owner="south", shape=(5,), bound=8.0)
    product = ops.sum(ops.mul(x, y), dim=0)
    return ops.open(product, to=("north", "south"), what="sum of products", why="the result")


def parse_address(entry):
    """Return where a party listens, or None if it only dials."""
    if "address" not in entry:
        return None
    host, _, port = entry["address"].rpartition(":")
    return host, int(port)


def main():
    """Meet the others over TLS, do our part, see everyone come to the end."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--as", dest="me", required=True, choices=(*ROLES.computing, ROLES.dealer))
    me = parser.parse_args().me
    text = Path("parties.toml").read_bytes()
    parties = tomllib.loads(text.decode())["parties"]
    # Everyone must have the same table and, beside it, the same plan: both are compared.
    meeting = Meeting(parties=tuple(parties), job_digest=hashlib.sha256(text).digest())
    plan = make_plan(covariance, PROTOCOLS["sealed"], ROLES, frac_bits=16)
    mine = {}
    if me in NUMBERS:
        mine = {NUMBERS[me]: torch.from_numpy(np.loadtxt(f"{me}.txt"))}
    with ExitStack() as stack:
        address = parse_address(parties[me])
        session = stack.enter_context(
            joined(
                me,
                meeting,
                peers={
                    name: Peer(parse_address(entry), entry["key"])
                    for name, entry in parties.items()
                    if name != me
                },
                identity=load_identity(Path("keys"), me),
                listener=stack.enter_context(listen(*address)) if address else None,
                progress=Progress(),
            )
        )
        if me in ROLES.computing:
            value = compute(session, plan, covariance, inputs=mine)
        else:
            serve(session, plan, inputs=mine)
            value = None
        session.finish()
    print(f"{me}: done" if value is None else f"{me}: sum of products {float(value):.3f}")


if __name__ == "__main__":
    main()
