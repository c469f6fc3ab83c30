"""phe: ``phe_peer.py BITS`` answers ``measure`` with CPU µs per number and client of a sum.

Two clients encrypt 64 numbers each, the ciphertexts are added, and the sums decrypted: of more
numbers the time grows in proportion, as every number is a ciphertext of its own.
"""

import importlib
import json
import sys
from time import process_time

CLIENTS, COUNT = 2, 64


def run(public: object, private: object) -> float:
    """Add once and return microseconds of processor time per number and client."""
    begun = process_time()
    totals = None
    for client in range(CLIENTS):
        sealed = [public.encrypt(at + client) for at in range(COUNT)]  # type: ignore[attr-defined]
        totals = sealed if totals is None else [a + b for a, b in zip(totals, sealed, strict=True)]
    found = [private.decrypt(one) for one in totals or []]  # type: ignore[attr-defined]
    seconds = process_time() - begun
    if found != [2 * at + 1 for at in range(COUNT)]:
        raise SystemExit("phe found another sum")
    return 1e6 * seconds / COUNT / CLIENTS


if __name__ == "__main__":
    phe = importlib.import_module("phe.paillier")
    keys = phe.generate_paillier_keypair(n_length=int(sys.argv[1]))
    for line in sys.stdin:
        if line.strip() == "measure":
            print(json.dumps({"value": run(*keys)}), flush=True)
