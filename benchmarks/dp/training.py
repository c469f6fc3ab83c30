"""A DP-SGD step: `tacit.dp.make_private` beside Opacus' ghost clipping and plain training.

Each side runs in a process of its own with one thread. Noise of ours comes from the cryptographic
generator, Opacus' from torch's. Memory is what the process grew by after the model was made.
"""

import functools
import json
import subprocess

from bench import Case, InlinePeer, as_program

CASES = ("dense 1e7", "convolutions", "decoder, 128 tokens", "adapters, 128 tokens")


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` leaves the decoder out."""
    return [
        Case(
            name=name,
            metric=metric,
            unit=unit,
            ours=functools.partial(_run, "tacit", name, metric),
            peers=tuple(
                InlinePeer(peer, functools.partial(_run, peer, name, metric))
                for peer in ("opacus", "plain")
            ),
        )
        for name in CASES[: 2 if quick else 4]
        for metric, unit in (("time", "ms"), ("memory", "MiB"))
    ]


def _run(side: str, case: str, metric: str) -> float:
    command = as_program("dp/_step", side, case)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)[metric])
