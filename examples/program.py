"""A private program of one's own: two hospitals compute a covariance, and see only the sum.

Prints the private and the plaintext result (they agree to about 1e-3), the forecast rounds and
bytes beside the metered ones, and who learned what.
"""

import numpy as np
import torch

from tacit.mpc import PROTOCOLS, Roles, compute, make_plan, serve
from tacit.party import Meeting, merge_costs, run_threads, without_setup

ROLES = Roles(first="north", second="south", dealer="dealer")
PARTIES = ("north", "south", "dealer")


def covariance(ops):
    """Add up the products of two columns that belong to different owners."""
    x = ops.input("x", owner="north", shape=(100,), bound=8.0)
    y = ops.input("y", owner="south", shape=(100,), bound=8.0)
    product = ops.sum(ops.mul(x, y), dim=0)
    return ops.open(product, to=("north", "south"), what="sum of products", why="the result")


def main():
    """Make data, run three parties as threads, print what happened."""
    generator = np.random.default_rng(7)
    x = torch.from_numpy(generator.normal(size=100))
    y = torch.from_numpy(0.5 * x.numpy() + generator.normal(size=100))
    inputs = {"north": {"x": x}, "south": {"y": y}, "dealer": {}}
    plan = make_plan(covariance, PROTOCOLS["sealed"], ROLES, frac_bits=16)
    costs, leaks = {}, set()

    def party(session):
        mine = inputs[session.me]
        is_computing = session.me in ROLES.computing
        value = (
            compute(session, plan, covariance, inputs=mine)
            if is_computing
            else serve(session, plan, inputs=mine)
        )
        costs[session.me] = session.cost()
        leaks.update((leak.to, leak.what) for leak in session.ledger.entries())
        return value

    meeting = Meeting(parties=PARTIES, job_digest=b"covariance".ljust(32))
    values = run_threads(dict.fromkeys(PARTIES, party), meeting)
    metered = without_setup(merge_costs(costs))
    print(f"private   {float(values['north']):.4f}")
    print(f"plaintext {float(x @ y):.4f}")
    print(f"rounds    forecast {plan.cost.online_rounds}, metered {metered.online_rounds}")
    total = sum(entry.payload_bytes for entry in metered.traffic)
    print(f"bytes     {total}, as forecast: {metered == plan.cost}")
    for to, what in sorted(leaks):
        print(f"learned   {to}: {what}")


if __name__ == "__main__":
    main()
