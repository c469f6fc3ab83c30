"""CrypTen beside us: ``crypten_peer.py ROW QUANTITY`` answers every line ``measure``.

Two processes on loopback (gloo), one thread each, CrypTen's settings as they come. Its provider
of triples, the trusted first party, makes them inside the operation: CrypTen has no offline phase
that could be left out. Time runs from the first party that leaves the barrier to the last that
holds its share of the result.

The error is that of the revealed ring words. CrypTen's own conversion of these to floats is off by
one for some negative numbers close to an integer, even if nothing was computed, and would hide it.
"""

import importlib
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from _mpc_crew import Answer, Crew
from _mpc_rows import LAYER_NORM_EPS, Row, largest_error, make_operands

PARTIES = 2
Secret = Any  # CrypTen is not typed


def lead(row_name: str, quantity: str) -> None:
    """Start the parties, pass every question on to them, and put their answers together."""
    crew = start_parties(__file__, row_name, quantity)
    found: Answer = {}
    for line in sys.stdin:
        if line.strip() == "measure":
            # Only time depends on the moment; the rest is found once.
            found = merge(crew.ask({})) if quantity == "time" or not found else found
            print(json.dumps({"value": found[quantity], **found}), flush=True)
    crew.close()


def start_parties(script: str, *arguments: str) -> Crew:
    """Start a script with ``--party`` as each of the parties, who find each other on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "DISTRIBUTED_BACKEND": "gloo",
        "GLOO_SOCKET_IFNAME": "lo",
        "RENDEZVOUS": f"tcp://127.0.0.1:{port}",
        "WORLD_SIZE": str(PARTIES),
    }
    return Crew(
        [[sys.executable, script, "--party", *arguments]] * PARTIES,
        settings=[{**shared, "RANK": str(rank)} for rank in range(PARTIES)],
    )


def merge(answers: list[Answer]) -> Answer:
    """Put what the parties saw together."""
    found = {
        "time": 1e3 * (max(a["end"] for a in answers) - min(a["start"] for a in answers)),
        "error": answers[0]["error"],
    }
    if answers[0]["is_counted"]:
        # Every party counts what it sends and what it receives.
        found["megabytes"] = sum(a["bytes"] for a in answers) / 2e6
        found["rounds"] = max(a["rounds"] for a in answers)
    return found


def take_part(row: Row, quantity: str) -> None:
    """Run the row once per question, as one of the parties."""
    crypten = import_crypten()
    crypten.init()
    # Counting costs time, so it is off where time is measured.
    crypten.cfg.communicator.verbose = quantity in ("megabytes", "rounds")
    torch = importlib.import_module("torch")
    secrets = [
        crypten.cryptensor(torch.tensor(operand.values), src=min(number, PARTIES - 1))
        for number, operand in enumerate(make_operands(row))
    ]
    for _ in sys.stdin:
        print(json.dumps(_run(crypten, row, secrets)), flush=True)


def _run(crypten: Any, row: Row, secrets: list[Secret]) -> Answer:
    communicator = crypten.communicator.get()
    with crypten.no_grad():
        communicator.barrier()
        communicator.reset_communication_stats()
        start = monotonic()
        result = OPERATIONS[row.operation](*secrets)
        end = monotonic()
        counted = communicator.get_communication_stats()
        opened = result.reveal().double() / result.encoder.scale
    return {
        "start": start,
        "end": end,
        "error": largest_error(row, opened.numpy()),
        "is_counted": bool(crypten.cfg.communicator.verbose),
        "bytes": counted["bytes"],
        "rounds": counted["rounds"],
    }


def import_crypten() -> Any:
    """Import CrypTen, which looks for a module of torch where it was two years ago."""
    moved = "torch.onnx._internal.torchscript_exporter.registration"
    sys.modules["torch.onnx._internal.registration"] = importlib.import_module(moved)
    return importlib.import_module("crypten")


def _gelu(x: Secret) -> Secret:
    return x * ((x * 0.7071067811865476).erf() + 1) * 0.5


def _layer_norm(x: Secret) -> Secret:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * (variance + LAYER_NORM_EPS).inv_sqrt()


def _perceptron(x: Secret, *weights: Secret) -> Secret:
    for layer in range(0, len(weights), 2):
        x = (x.relu() if layer else x).matmul(weights[layer]) + weights[layer + 1]
    return x


OPERATIONS: dict[str, Callable[..., Secret]] = {
    "linear": lambda x, y: x.matmul(y),
    "matmul": lambda x, y: x.matmul(y),
    "mul": lambda x, y: x * y,
    "relu": lambda x: x.relu(),
    "is_positive": lambda x: x >= 0,
    "gelu": _gelu,
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": _layer_norm,
    "rsqrt": lambda x: x.inv_sqrt(),
    "mlp": _perceptron,
}


if __name__ == "__main__":
    if sys.argv[1] == "--party":
        take_part(Row.parse(sys.argv[2]), sys.argv[3])
    else:
        lead(sys.argv[1], sys.argv[2])
