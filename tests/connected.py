"""One party in Python, as a process of its own: what it gives and gets is in files of arrays."""

from pathlib import Path

import numpy as np
import torch

from children import CONTEXT


def take_part(job, me, given, got):
    """Join a job with the arrays x, y or shares of a file, and write down what comes back."""
    import tacit

    with np.load(given) as arrays:
        brought = {name: arrays[name] for name in arrays.files}
    shares = {n[7:]: torch.from_numpy(one) for n, one in brought.items() if n[:7] == "shares."}
    with tacit.connect(job, me, keys=Path(job).parent / "keys") as party:
        answer = party.run(brought.get("x"), brought.get("y"), model=shares or None)
    back = {f"shares.{name}": one.numpy() for name, one in answer.shares.items()}
    back |= {f"weights.{name}": one.numpy() for name, one in answer.weights.items()}
    if answer.values is not None:
        back["values"] = answer.values.numpy()
    np.savez(got, **back)


def start(job, me, folder, **arrays):
    """Start such a process."""
    given, got = folder / f"{me}-given.npz", folder / f"{me}-got.npz"
    np.savez(given, **arrays)
    process = CONTEXT.Process(target=take_part, args=(str(job), me, str(given), str(got)))
    process.start()
    return process


def read(me, folder):
    """Return what a party got."""
    with np.load(folder / f"{me}-got.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}
