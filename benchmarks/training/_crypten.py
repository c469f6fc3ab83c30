"""CrypTen's training step beside ours: run by the Python of its own environment.

``_training_crypten.py STEPS BATCH INPUTS WIDTH… `` prints the seconds of every step as JSON. Two
processes on loopback (gloo), one thread each, settings as they come; triples come from the
trusted first party, inside the step.
"""

import importlib
import itertools
import json
import multiprocessing
import os
import socket
import sys
import time
from typing import Any


def main() -> None:
    """Start both parties and print what the first one measured."""
    steps, batch, *widths = map(int, sys.argv[1:])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe(duplex=False)
    processes = [
        context.Process(target=_party, args=(rank, port, steps, batch, widths, theirs))
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    print(json.dumps(mine.recv()), flush=True)
    for process in processes:
        process.join()


def _party(rank: int, port: int, steps: int, batch: int, widths: list[int], pipe: Any) -> None:
    os.environ |= {
        "DISTRIBUTED_BACKEND": "gloo",
        "GLOO_SOCKET_IFNAME": "lo",
        "RENDEZVOUS": f"tcp://127.0.0.1:{port}",
        "WORLD_SIZE": "2",
        "RANK": str(rank),
        "OMP_NUM_THREADS": "1",
    }
    moved = "torch.onnx._internal.torchscript_exporter.registration"
    sys.modules["torch.onnx._internal.registration"] = importlib.import_module(moved)
    crypten = importlib.import_module("crypten")
    torch = importlib.import_module("torch")
    crypten.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers: list[Any] = []
    for before, after in itertools.pairwise(widths):
        layers += [crypten.nn.Linear(before, after), crypten.nn.ReLU()]
    model = crypten.nn.Sequential(*layers[:-1]).encrypt()
    loss = crypten.nn.CrossEntropyLoss()
    x = crypten.cryptensor(torch.rand(batch, widths[0]), src=0)
    y = crypten.cryptensor(torch.eye(widths[-1])[torch.arange(batch) % widths[-1]], src=1)
    seconds = []
    for _ in range(steps + 1):
        crypten.comm.get().barrier()
        start = time.monotonic()
        model.zero_grad()
        loss(model(x), y).backward()
        model.update_parameters(0.1)
        crypten.comm.get().barrier()
        seconds.append(time.monotonic() - start)
    if rank == 0:
        pipe.send(seconds[1:])


if __name__ == "__main__":
    main()
