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
import resource
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from mpc._crew import Answer, Crew
from mpc._encoder import EPS, HEAD, MATRICES, layers_of
from mpc._rows import LAYER_NORM_EPS, Row, largest_error, make_operands

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
        "memory": sum(a["memory"] for a in answers),
        "processor": 1e3 * sum(a["processor"] for a in answers),
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
        start, worked = monotonic(), process_time()
        result = OPERATIONS[row.operation](*secrets)
        end, worked = monotonic(), process_time() - worked
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        counted = communicator.get_communication_stats()
        opened = result.reveal().double() / result.encoder.scale
    return {
        "start": start,
        "end": end,
        "memory": memory,
        "processor": worked,
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


def _layer_norm(x: Secret, eps: float = LAYER_NORM_EPS) -> Secret:
    centred = x - x.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return centred * (variance + eps).inv_sqrt()


def _perceptron(x: Secret, *weights: Secret) -> Secret:
    for layer in range(0, len(weights), 2):
        x = (x.relu() if layer else x).matmul(weights[layer]) + weights[layer + 1]
    return x


def _encoder(x: Secret, *weights: Secret) -> Secret:
    tokens, width = x.shape

    def affine(w: dict[str, Secret], name: str, y: Secret) -> Secret:
        return y.matmul(w[f"{name}/weight"].t()) + w[f"{name}/bias"]

    def norm(w: dict[str, Secret], name: str, y: Secret) -> Secret:
        return _layer_norm(y, EPS) * w[f"{name}/weight"] + w[f"{name}/bias"]

    def split(y: Secret) -> Secret:
        return y.reshape(tokens, width // HEAD, HEAD).transpose(0, 1)

    for w in layers_of(weights):
        q, k, v = (split(affine(w, name, x)) for name in MATRICES[:3])
        scores = q.matmul(k.transpose(1, 2)) * HEAD**-0.5
        mixed = scores.softmax(-1).matmul(v).transpose(0, 1).reshape(tokens, width)
        x = norm(w, "norm1", x + affine(w, "out", mixed))
        wide = affine(w, "up", x)
        # The series of CrypTen's erf grows without bound from 3 on; this form is off by 0.02.
        active = wide * (wide * 1.702).sigmoid()
        x = norm(w, "norm2", x + affine(w, "down", active))
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
    "bert": _encoder,
}


if __name__ == "__main__":
    if sys.argv[1] == "--party":
        take_part(Row.parse(sys.argv[2]), sys.argv[3])
    else:
        lead(sys.argv[1], sys.argv[2])
