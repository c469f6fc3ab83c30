"""A real Flower deployment: one SuperLink and two SuperNodes, each a process, over TLS."""

import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from support.machine import free_ports

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'tacit-ml[fl]'")

# Every message starts a process of Flower's, which takes seconds: minutes for a masked round.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
BIN = Path(sys.executable).parent

PROJECT = """
    [project]
    name = "sums"
    version = "1.0.0"
    license = "Apache-2.0"
    dependencies = []

    [build-system]
    requires = ["hatchling"]
    build-backend = "hatchling.build"

    [tool.flwr.app]
    publisher = "tacit"

    [tool.flwr.app.components]
    serverapp = "sums.server:app"
    clientapp = "sums.client:app"

    [tool.flwr.app.config]
    out = ""
    job = ""
"""
JOB = """
    [job]
    name = "deployed"
    kind = "federated"
    [data]
    file = "FILE"
    label = "y"
    [federated]
    clients = 2
    rounds = 1
    minimum = 2
    drop_rate = 0.0
    colluding_share = 0.0
    [privacy]
    kind = "central"
    epsilon = 50.0
    delta = 1e-3
    clip = 1.0
"""
POLICY = """
    from tacit.federated import FederatedSpec, Federation, Privacy

    TERMS = Federation(
        clients=2, rounds=1, aggregator="AGGREGATOR", minimum=2, drop_rate=0.0, colluding_share=0.0
    )
    POLICY = FederatedSpec(federated=TERMS, privacy=Privacy(clip=1.0))
"""
CLIENT = """
    from flwr.app import Array, ArrayRecord, Message, RecordDict
    from flwr.clientapp import ClientApp
    from sums.policy import POLICY
    from tacit.federated.flower import client_mod

    app = ClientApp(mods=[client_mod(POLICY)])


    @app.train()
    def train(message, context):
        step = 0.1 * (1 + context.node_config["partition-id"])
        given = message.content["arrays"]
        arrays = ArrayRecord({name: Array(one.numpy() + step) for name, one in given.items()})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)
"""
SERVER = """
    import json
    from pathlib import Path

    import torch
    from flwr.serverapp import ServerApp
    from sums.policy import POLICY
    from tacit.federated import run_rounds
    from tacit.federated.flower import FlowerCarrier, named_arrays

    app = ServerApp()


    @app.main()
    def main(grid, context):
        carrier = FlowerCarrier(grid, POLICY, named_arrays(torch.nn.Linear(2, 1)), timeout_s=120)
        carrier.meet()
        found = run_rounds(
            carrier, torch.zeros(3), POLICY, rounds=1,
            judge=lambda weights: (), on_round=lambda report: None,
        )
        last = found.rounds[-1]
        out = {"weights": found.weights.tolist(), "survivors": last.survivors, "void": last.void}
        part = Path(context.run_config["out"] + ".part")
        part.write_text(json.dumps(out))
        part.rename(context.run_config["out"])
"""


def write_app(folder, aggregator):
    package = folder / "sums"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(textwrap.dedent(PROJECT))
    (package / "__init__.py").write_text("")
    for name, text in (("policy", POLICY), ("client", CLIENT), ("server", SERVER)):
        text = textwrap.dedent(text).replace("AGGREGATOR", aggregator)
        (package / f"{name}.py").write_text(text)


def write_certificates(folder):
    """Make an authority and a certificate for this machine."""
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    root = certify("authority", "authority", authority.public_key(), authority, is_authority=True)
    leaf = certify("localhost", "authority", key.public_key(), authority, is_authority=False)
    pem = serialization.Encoding.PEM
    (folder / "root.crt").write_bytes(root.public_bytes(pem))
    (folder / "link.crt").write_bytes(leaf.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "link.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    )


def certify(subject, issuer, public, signer, *, is_authority):
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(here), critical=False)
    return builder.sign(signer, hashes.SHA256())


@contextmanager
def running(commands, folder, environment):
    """Run commands, each in a group of its own, and end every group in the end."""
    started = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"{number}.log").open("wb") as log:
                started.append(
                    subprocess.Popen(
                        command, stdout=log, stderr=log, env=environment, start_new_session=True
                    )
                )
        yield
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        time.sleep(1)
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def deploy(tmp_path, nodes, config, out):
    """Run the app in ``tmp_path / "app"`` on a link and nodes of these configs until ``out`` is."""
    write_certificates(tmp_path)
    link, *ports = free_ports(1 + len(nodes))
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{link}"\n'
        f'root-certificates = "{tmp_path / "root.crt"}"\n'
    )
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path),
    }
    root = ("--root-certificates", str(tmp_path / "root.crt"))
    superlink = [
        *(str(BIN / "flower-superlink"), "--port", str(link)),
        *(
            "--ssl-certfile",
            str(tmp_path / "link.crt"),
            "--ssl-keyfile",
            str(tmp_path / "link.key"),
        ),
        *("--ssl-ca-certfile", str(tmp_path / "root.crt")),
        "--disable-runtime-dependency-installation",
    ]
    supernodes = [
        [
            *(str(BIN / "flower-supernode"), "--superlink", f"127.0.0.1:{link}", *root),
            *("--port", str(port), "--node-config", node),
        ]
        for port, node in zip(ports, nodes, strict=True)
    ]
    with running([superlink, *supernodes], tmp_path, environment):
        wait_for(lambda: is_listening(link), 60)
        subprocess.run(
            [str(BIN / "flwr"), "run", str(tmp_path / "app"), "here", "-c", config],
            check=True,
            env=environment,
            capture_output=True,
            timeout=120,
        )
        wait_for(out.exists, 400)


@pytest.mark.parametrize("aggregator", ["plain", "masked"])
def test_two_nodes_and_a_server_add_up_over_tls(tmp_path, aggregator):
    write_app(tmp_path / "app", aggregator)
    out = tmp_path / "out.json"
    deploy(tmp_path, [f"partition-id={number}" for number in range(2)], f'out="{out}"', out)
    found = json.loads(out.read_text())
    assert found["void"] is None
    assert found["survivors"] == [0, 1]
    assert found["weights"] == pytest.approx([0.15] * 3, abs=1e-4)


def test_the_job_of_a_simulation_is_deployed_on_nodes_with_files_of_their_own(tmp_path):
    write_app(tmp_path / "app", "masked")
    for name in ("client", "server"):
        text = f"from tacit.cli.flower import {name}_app as app\n__all__ = ['app']\n"
        (tmp_path / "app" / "sums" / f"{name}.py").write_text(text)
    nodes = []
    for number in range(2):
        rows = "\n".join(f"{i % 5},{(i + number) % 3},{int(i % 5 > 2)}" for i in range(60))
        (tmp_path / f"{number}.csv").write_text(f"a,b,y\n{rows}\n")
        job = textwrap.dedent(JOB).replace("FILE", str(tmp_path / f"{number}.csv"))
        (tmp_path / f"{number}.toml").write_text(job)
        nodes.append(f'job="{tmp_path / f"{number}.toml"}" journal="{tmp_path / "journal"}"')
    out = tmp_path / "results"
    config = f'job="{tmp_path / "0.toml"}" out="{out}"'
    deploy(tmp_path, nodes, config, out / "weights.safetensors")
    (report,) = json.loads((out / "rounds.json").read_text())
    assert report["void"] is None
    assert report["survivors"] == [0, 1]
    assert report["claim"]["epsilon"] == pytest.approx(50.0, rel=0.01)
    assert len(list((tmp_path / "journal").glob("*.journal"))) == 2


def is_listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(is_done, seconds):
    deadline = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < deadline, f"not done after {seconds} s"
        time.sleep(0.5)
