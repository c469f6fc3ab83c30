"""A training step in SPU: ``spu_steps.py PROTOCOL KIND STEPS SIZES…`` prints its seconds as JSON.

KIND "private" is a step of softmax regression with every record's gradient clipped and noise added
(SIZES: rows, features, classes); "block" is `jax.grad` of a Transformer block and its change of all
weights (rows, tokens, width, heads). Every party is a process on loopback, one thread, a ring of 64
bits, SPU's settings as they come. Compiling is left out; the first run is for warming up. Beside
seconds it prints those of all processors together, and how far the change of the first weights is
from that of JAX in the clear.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, process_time
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]
from spu_peer import PARTIES, Party, Secret, _free_ports  # noqa: E402


def private(x: Secret, y: Secret, w: Secret, b: Secret, noise: Secret) -> Secret:
    """Clip to norm 1 from the norms of what goes in and comes back, add up, add noise."""
    import jax
    import jax.numpy as jnp

    error = jax.nn.softmax(x @ w + b) - y
    square = jnp.sum(error * error, 1) * (jnp.sum(x * x, 1) + 1.0)
    factor = jax.lax.rsqrt(jnp.maximum(square, 1.0))
    scaled = error * factor[:, None]
    rate = 1.0 / x.shape[0]
    return w - rate * (x.T @ scaled + noise), b - rate * jnp.sum(scaled, 0)


def _norm(x: Secret) -> Secret:
    import jax
    import jax.numpy as jnp

    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, -1, keepdims=True) + 1e-5)


def block(heads: int) -> Any:
    """Make a step of a block as GPT-2 has it, with scores of the mean of all tokens."""

    def loss(weights: Any, x: Secret, y: Secret) -> Secret:
        import jax
        import jax.numpy as jnp

        qkv, out, up, down, head = weights
        rows, tokens, width = x.shape
        cut = lambda z: z.reshape(rows, tokens, heads, width // heads).transpose(0, 2, 1, 3)  # noqa: E731
        q, k, v = (cut(part) for part in jnp.split(_norm(x) @ qkv, 3, axis=-1))
        scores = q @ k.transpose(0, 1, 3, 2) * (width // heads) ** -0.5
        mixed = jax.nn.softmax(scores, axis=-1) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(rows, tokens, width) @ out
        x = x + jax.nn.gelu(_norm(x) @ up) @ down
        return -jnp.mean(jnp.sum(y * jax.nn.log_softmax(jnp.mean(x, 1) @ head), 1))

    def step(x: Secret, y: Secret, *weights: Secret) -> Secret:
        import jax

        changes = jax.grad(loss)(weights, x, y)
        return tuple(w - 0.1 * g for w, g in zip(weights, changes, strict=True))

    return step


def operands(kind: str, sizes: list[int]) -> tuple[Any, list[Any]]:
    """Return the step, and what it works on."""
    import numpy as np

    coins = np.random.default_rng(0)
    if kind == "private":
        rows, features, classes = sizes
        x = coins.normal(size=(rows, features))
        x /= np.linalg.norm(x, axis=1, keepdims=True)
        y = np.eye(classes)[coins.integers(0, classes, rows)]
        w, b = 0.1 * coins.normal(size=(features, classes)), np.zeros(classes)
        return private, [x, y, w, b, coins.normal(size=w.shape)]
    rows, tokens, width, heads = sizes
    shapes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    weights = [coins.normal(size=one) / one[0] ** 0.5 for one in [*shapes, (width, 2)]]
    y = np.eye(2)[coins.integers(0, 2, rows)]
    return block(heads), [coins.uniform(-1, 1, size=(rows, tokens, width)), y, *weights]


class Stepper(Party):
    """A party that runs one step over and over."""

    def prepare(self, kind: str, sizes: list[int]) -> None:
        """Compile, and take my shares."""
        step, values = operands(kind, sizes)
        self.values = [one.astype("float32") for one in values]
        names = [f"in{at}" for at in range(len(values))]
        secret = self._spu.Visibility.VIS_SECRET
        self._program, _ = self._frontend.compile(
            self._frontend.Kind.JAX,
            step,
            self.values,
            {},
            names,
            [secret] * len(names),
            lambda out: [f"out{at}" for at in range(len(out))],
        )
        self.first = step(*self.values)[0]
        if self._rank == 0:
            for name, value in zip(names, self.values, strict=True):
                for rank, share in enumerate(self._io.make_shares(value, secret)):
                    self._write(f"{name}.{rank}", share)
        self._link.barrier()
        for name in names:
            self._runtime.set_var(name, self._read(f"{name}.{self._rank}"))

    def seconds(self, steps: int) -> tuple[list[float], float]:
        """Time the steps: seconds of each, and of my processor for one of them."""
        found, worked = [], 0.0
        for number in range(steps + 1):
            self._link.barrier()
            if number == 1:
                worked = process_time()
            begun = monotonic()
            self._runtime.run(self._program)
            self._link.barrier()
            found.append(monotonic() - begun)
        return found[1:], (process_time() - worked) / steps

    def error(self) -> float | None:
        """Return how far the change of the first weights is off, relatively, at the first party."""
        import numpy as np

        self._write(f"out.{self._rank}", self._runtime.get_var("out0"))
        self._link.barrier()
        if self._rank:
            return None
        shares = [self._read(f"out.{rank}") for rank in range(self._parties)]
        true = np.asarray(self.first)
        start = next(one for one in self.values[2:] if one.shape == true.shape)
        found = self._io.reconstruct(shares)
        return float(np.linalg.norm(found - true) / np.linalg.norm(true - start))


def main(protocol: str, kind: str, steps: int, sizes: list[int]) -> None:
    """Start the parties and print what the first one measured."""
    hosts = [f"127.0.0.1:{port}" for port in _free_ports(PARTIES[protocol])]
    with tempfile.TemporaryDirectory() as folder:
        given = [protocol, kind, str(steps), ",".join(map(str, sizes)), folder]
        command = [sys.executable, __file__, "--party", *given]
        running = [
            subprocess.Popen([*command, str(rank), *hosts], stdout=subprocess.PIPE, text=True)
            for rank in range(len(hosts))
        ]
        said = [json.loads(one.communicate()[0].strip().splitlines()[-1]) for one in running]
        worked = sum(one["processor"] for one in said)
        print(json.dumps({**said[0], "processor": worked}), flush=True)


def take_part(
    protocol: str, kind: str, steps: str, sizes: str, folder: str, rank: str, *hosts: str
) -> None:
    """Be one of the parties."""
    party = Stepper(protocol, "time", Path(folder), int(rank))
    party.connect(list(hosts))
    party.prepare(kind, [int(one) for one in sizes.split(",")])
    seconds, worked = party.seconds(int(steps))
    answer = {"seconds": seconds, "processor": worked, "error": party.error()}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--party":
        take_part(*sys.argv[2:])
    else:
        main(sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(one) for one in sys.argv[4:]])
