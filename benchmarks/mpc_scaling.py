"""How our time grows: with the number of elements, and with the round-trip time of the network.

Three processes over TLS on loopback, one thread each. Round-trip times come from links that hold
every frame back; the smallest size says what a round costs, the largest what a byte costs.
"""

import sys
from pathlib import Path

from tacit.cli.bench import Case

sys.path.append(str(Path(__file__).parent))
from _mpc_parties import Parties
from _mpc_rows import Row

OPERATIONS = {"mul": "mul", "is_positive": "compare", "relu": "ReLU"}
PROTOCOLS = ("sealed", "permuted3")
SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
LARGEST_QUICK = 10**6
RTTS_MS = (0.1, 10.0, 40.0)
ELEMENTS_AT_RTT = 10**4


def cases(quick: bool) -> list[Case]:
    """Return online times against size, then against round-trip time."""
    near = Parties()
    found = []
    for operation in OPERATIONS:
        for protocol in PROTOCOLS:
            for size in SIZES:
                if size <= LARGEST_QUICK or not quick:
                    name = f"{OPERATIONS[operation]} {size:.0e}, {protocol}"
                    found.append(_case(name, near, f"{operation}-{size}", protocol))
    for rtt_ms in RTTS_MS:
        far = Parties(rtt_ms=rtt_ms)
        for operation in OPERATIONS:
            for protocol in PROTOCOLS:
                name = (
                    f"{OPERATIONS[operation]} {ELEMENTS_AT_RTT:.0e}, RTT {rtt_ms:g} ms, {protocol}"
                )
                found.append(_case(name, far, f"{operation}-{ELEMENTS_AT_RTT}", protocol))
    return found


def _case(name: str, parties: Parties, row: str, protocol: str) -> Case:
    def online_ms() -> float:
        return parties.run(Row.parse(row), protocol).online_ms

    return Case(name=name, metric="online time", unit="ms", ours=online_ms)
