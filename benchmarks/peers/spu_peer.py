"""SPU beside us: ``spu_peer.py PROTOCOL ROW QUANTITY`` answers every line ``measure``.

Every party is a process on loopback (brpc links): two for semi2k and cheetah, three for aby3. The
ring has 64 bits; one thread computes per party; SPU's other settings are as they come. Semi2k gets
its triples from the first party, inside the operation: there is no offline phase that could be
left out. Cheetah makes its correlations inside, too. Time runs from the first party that leaves the
barrier to the last that holds its share of the result.
"""

import json
import re
import resource
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from mpc._crew import Answer, Crew
from mpc._rows import LAYER_NORM_EPS, Row, largest_error, make_operands
from spu_encoder import EXP_ITERATIONS, encoder

PARTIES = {"semi2k": 2, "cheetah": 2, "aby3": 3}
TIMEOUT_MS = 600_000
# The profile's last line, for the whole run; the lines before it are for single operations.
COUNTED = re.compile(r"Link details: total send bytes (\d+),.*send actions (\d+)")
Secret = Any  # an array of jax while a function is traced


def lead(protocol: str, row_name: str, quantity: str) -> None:
    """Start the parties, pass every question on to them, and put their answers together."""
    hosts = [f"127.0.0.1:{port}" for port in _free_ports(PARTIES[protocol])]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--party", protocol, row_name, quantity, folder]
        crew = Crew(
            [[*command, str(rank), *hosts] for rank in range(len(hosts))],
            settings=[{}] * len(hosts),
        )
        found: Answer = {}
        for line in sys.stdin:
            if line.strip() == "measure":
                # Only time depends on the moment; the rest is found once.
                found = merge(crew.ask({})) if quantity == "time" or not found else found
                print(json.dumps({"value": found[quantity], **found}), flush=True)
        crew.close()


def merge(answers: list[Answer]) -> Answer:
    """Put what the parties saw together."""
    found = {
        "time": 1e3 * (max(a["end"] for a in answers) - min(a["start"] for a in answers)),
        "error": answers[0]["error"],
        "memory": sum(a["memory"] for a in answers),
        "processor": 1e3 * sum(a["processor"] for a in answers),
    }
    if "bytes" in answers[0]:
        found["megabytes"] = sum(a["bytes"] for a in answers) / 1e6
        found["rounds"] = max(a["rounds"] for a in answers)
    return found


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Party:
    """One party: its link, its runtime, and a folder through which shares are handed over."""

    def __init__(
        self, protocol: str, quantity: str, folder: Path, rank: int, *, has_puma: bool = False
    ) -> None:
        import spu
        from spu.utils import frontend

        self._spu = spu
        self._frontend = frontend
        self._folder = folder
        self._rank = rank
        self._counts = quantity in ("megabytes", "rounds")
        self._log = folder / f"log{rank}"
        kind = getattr(spu.ProtocolKind, protocol.upper())
        self._config = spu.RuntimeConfig(protocol=kind, field=spu.FieldType.FM64)
        self._config.max_concurrency = 1
        if has_puma:
            self._config.fxp_exp_mode = spu.RuntimeConfig.ExpMode.EXP_TAYLOR
            self._config.fxp_exp_iters = EXP_ITERATIONS
        self._config.enable_pphlo_profile = self._counts
        self._parties = PARTIES[protocol]
        self._io = spu.Io(self._parties, self._config)

    def connect(self, hosts: list[str]) -> None:
        """Meet the others."""
        options = self._spu.libspu.logging.LogOptions()
        options.enable_console_logger = False
        options.system_log_path = str(self._log)
        self._spu.libspu.logging.setup_logging(options)
        description = self._spu.link.Desc()
        description.recv_timeout_ms = TIMEOUT_MS
        description.http_timeout_ms = TIMEOUT_MS
        for number, host in enumerate(hosts):
            description.add_party(f"party{number}", host)
        self._link = self._spu.link.create_brpc(description, self._rank)
        self._runtime = self._spu.Runtime(self._link, self._config)

    def load(self, row: Row) -> None:
        """Compile the row and take my shares of its inputs, which the first party makes."""
        values = [operand.values.astype("float32") for operand in make_operands(row)]
        names = [operand.name for operand in make_operands(row)]
        secret = self._spu.Visibility.VIS_SECRET
        self._row = row
        self._program, _ = self._frontend.compile(
            self._frontend.Kind.JAX,
            OPERATIONS[row.operation],
            values,
            {},
            names,
            [secret] * len(names),
            lambda _: ["out"],
        )
        if self._rank == 0:
            for name, value in zip(names, values, strict=True):
                for rank, share in enumerate(self._io.make_shares(value, secret)):
                    self._write(f"{_file(name)}.{rank}", share)
        self._link.barrier()
        for name in names:
            self._runtime.set_var(name, self._read(f"{_file(name)}.{self._rank}"))

    def run(self) -> Answer:
        """Run the row once."""
        seen = len(self._read_log())
        self._link.barrier()
        start, worked = monotonic(), process_time()
        self._runtime.run(self._program)
        end, worked = monotonic(), process_time() - worked
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
        self._write(f"out.{self._rank}", self._runtime.get_var("out"))
        self._link.barrier()
        answer: Answer = {"start": start, "end": end, "memory": memory, "processor": worked}
        if self._rank == 0:
            shares = [self._read(f"out.{rank}") for rank in range(self._parties)]
            answer["error"] = largest_error(self._row, self._io.reconstruct(shares))
        if self._counts:
            answer |= self._count(self._read_log()[seen:])
        self._link.barrier()
        return answer

    def _count(self, log: str) -> Answer:
        found = COUNTED.search(log)
        if found is None:
            raise ValueError(f"SPU's profile holds no counts: {log[-500:]}")
        return {"bytes": int(found[1]), "rounds": int(found[2])}

    def _read_log(self) -> str:
        return self._log.read_text(errors="replace") if self._counts else ""

    def _write(self, name: str, share: Any) -> None:
        (self._folder / f"{name}.meta").write_bytes(share.meta)
        for number, chunk in enumerate(share.share_chunks):
            (self._folder / f"{name}.{number:06}").write_bytes(chunk)

    def _read(self, name: str) -> Any:
        share = self._spu.libspu.Share()
        share.meta = (self._folder / f"{name}.meta").read_bytes()
        chunks = sorted(self._folder.glob(f"{name}.[0-9]*"))
        share.share_chunks = [chunk.read_bytes() for chunk in chunks]
        return share


def _file(name: str) -> str:
    return name.replace("/", "_")


def take_part(
    protocol: str, row_name: str, quantity: str, folder: str, rank: str, *hosts: str
) -> None:
    """Run the row once per question, as one of the parties."""
    row = Row.parse(row_name)
    has_puma = row.operation == "bert"
    party = Party(protocol, quantity, Path(folder), int(rank), has_puma=has_puma)
    party.connect(list(hosts))
    party.load(row)
    for _ in sys.stdin:
        print(json.dumps(party.run()), flush=True)


def _gelu(x: Secret) -> Secret:
    import jax

    return jax.nn.gelu(x)


def _softmax(x: Secret) -> Secret:
    import jax

    return jax.nn.softmax(x, axis=-1)


def _layer_norm(x: Secret) -> Secret:
    import jax
    import jax.numpy as jnp

    centred = x - jnp.mean(x, -1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + LAYER_NORM_EPS)


def _rsqrt(x: Secret) -> Secret:
    import jax

    return jax.lax.rsqrt(x)


def _relu(x: Secret) -> Secret:
    import jax.numpy as jnp

    return jnp.maximum(x, 0)


def _perceptron(x: Secret, *weights: Secret) -> Secret:
    for layer in range(0, len(weights), 2):
        x = (_relu(x) if layer else x) @ weights[layer] + weights[layer + 1]
    return x


OPERATIONS: dict[str, Callable[..., Secret]] = {
    "linear": lambda x, y: x @ y,
    "matmul": lambda x, y: x @ y,
    "mul": lambda x, y: x * y,
    "relu": _relu,
    "is_positive": lambda x: x >= 0,
    "gelu": _gelu,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rsqrt": _rsqrt,
    "mlp": _perceptron,
    "bert": encoder,
}


if __name__ == "__main__":
    if sys.argv[1] == "--party":
        take_part(*sys.argv[2:])
    else:
        lead(*sys.argv[1:])
