"""Flower's SecAgg+: ``flower_peer.py CLIENTS SHARES DROPPED DIMENSION`` answers ``measure``.

All clients and the server run in this process, on the functions that Flower's own mod and workflow
call; nothing is sent. The value is the processor time of all of them together, in seconds, from the
first key to the mean. Those that drop out do so after the shares are dealt.
"""

import importlib
import json
import os
import sys
from time import process_time
from typing import Any

Flower = Any  # Flower's functions of this kind are not typed for others

_FUNCTIONS = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_COMMON = "flwr.common.secure_aggregation"
CLIP, RANGE, MODULUS = 8.0, 1 << 22, 1 << 32


def run(clients: int, shares: int, dropped: int, dimension: int) -> float:
    """Add up once and return the processor time."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    np = importlib.import_module("numpy")
    mod = importlib.import_module(_FUNCTIONS)
    update = np.random.default_rng(0).uniform(-1, 1, dimension).astype(np.float32)
    begun = process_time()
    states = _agree(mod, clients, shares)
    vector, alive = _collect(mod, states, update, dropped)
    mean = _unmask(mod, states, vector, alive)
    seconds = process_time() - begun
    if not np.allclose(mean[0], update, atol=1e-3):
        raise SystemExit("Flower's mean is not that of the updates")
    return seconds


def _agree(mod: Flower, clients: int, shares: int) -> dict[int, Flower]:
    key = mod.Key
    setting = {
        key.SAMPLE_NUMBER: clients,
        key.SHARE_NUMBER: shares,
        key.THRESHOLD: shares // 2 + 1,
        key.CLIPPING_RANGE: CLIP,
        key.TARGET_RANGE: RANGE,
        key.MOD_RANGE: MODULUS,
        key.MAX_WEIGHT: 1000.0,
    }
    states = {}
    for node in range(clients):
        states[node] = mod.SecAggPlusState()
        states[node].nid = node
        mod._setup(states[node], setting)
    keys = {node: (state.pk1, state.pk2) for node, state in states.items()}
    inbox: dict[int, list[tuple[int, bytes]]] = {node: [] for node in states}
    for node, state in states.items():
        around = {str(other): keys[other] for other in neighbours(node, clients, shares)}
        sent = mod._share_keys(state, around)
        for other, box in zip(sent[key.DESTINATION_LIST], sent[key.CIPHERTEXT_LIST], strict=True):
            inbox[other].append((node, box))
    for node, state in states.items():
        state.inbox = inbox[node]
    return states


def neighbours(node: int, clients: int, shares: int) -> list[int]:
    """List the nodes that hold shares of a node, itself included."""
    if shares >= clients:
        return list(range(clients))
    half = shares // 2
    return [(node + step) % clients for step in range(-half, half + 1)]


def _collect(mod: Flower, states: dict[int, Flower], update: Flower, dropped: int) -> Flower:
    arithmetic = importlib.import_module(f"{_COMMON}.ndarrays_arithmetic")
    common = importlib.import_module("flwr.common")
    parameters = common.ndarrays_to_parameters([update])
    total = None
    alive = [node for node in states if node >= dropped]
    for node in alive:
        sources, boxes = zip(*states[node].inbox, strict=True)
        received = {mod.Key.CIPHERTEXT_LIST: list(boxes), mod.Key.SOURCE_LIST: list(sources)}
        sent = mod._collect_masked_vectors(states[node], received, 10, parameters)
        vector = [common.bytes_to_ndarray(part) for part in sent[mod.Key.MASKED_PARAMETERS]]
        total = vector if total is None else arithmetic.parameters_addition(total, vector)
    return arithmetic.parameters_mod(total, MODULUS), alive


def _unmask(mod: Flower, states: dict[int, Flower], vector: Flower, alive: list[int]) -> Flower:
    shamir = importlib.import_module(f"{_COMMON}.crypto.shamir")
    arithmetic = importlib.import_module(f"{_COMMON}.ndarrays_arithmetic")
    shares: dict[int, list[bytes]] = {node: [] for node in states}
    count, held = len(states), states[0].share_num
    for node in alive:
        around = neighbours(node, count, held)
        asked = {
            mod.Key.ACTIVE_NODE_ID_LIST: [other for other in around if other in alive],
            mod.Key.DEAD_NODE_ID_LIST: [other for other in around if other not in alive],
        }
        sent = mod._unmask(states[node], asked)
        for owner, share in zip(sent[mod.Key.NODE_ID_LIST], sent[mod.Key.SHARE_LIST], strict=True):
            shares[owner].append(share)
    shape = arithmetic.get_parameters_shape(vector)
    for node, given in shares.items():
        secret = shamir.combine_shares(given)
        if node in alive:
            mask = mod.pseudo_rand_gen(secret, MODULUS, shape)
            vector = arithmetic.parameters_subtraction(vector, mask)
            continue
        private = mod.bytes_to_private_key(secret)
        for other in neighbours(node, count, held):
            if other == node or other not in alive:
                continue
            key = mod.generate_shared_key(private, mod.bytes_to_public_key(states[other].pk1))
            mask = mod.pseudo_rand_gen(key, MODULUS, shape)
            change = (
                arithmetic.parameters_addition
                if node > other
                else arithmetic.parameters_subtraction
            )
            vector = change(vector, mask)
    return _to_mean(arithmetic.parameters_mod(vector, MODULUS), len(alive))


def _to_mean(vector: Flower, alive: int) -> Flower:
    arithmetic = importlib.import_module(f"{_COMMON}.ndarrays_arithmetic")
    quantization = importlib.import_module(f"{_COMMON}.quantization")
    ratio, vector = arithmetic.factor_extract(vector)
    mean = quantization.dequantize(vector, CLIP, RANGE)
    return [(part - (alive - 1) * CLIP) * (RANGE / ratio) for part in mean]


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:]]
    for line in sys.stdin:
        if line.strip() == "measure":
            print(json.dumps({"value": run(*sizes)}), flush=True)
