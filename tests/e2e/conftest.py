import numpy as np
import pytest

from support.machine import free_ports
from tacit.crypto import make_identity

JOB = """
[job]
name = "test"
kind = "infer"
out = "{out}"

{parties}

[data]
owner = "hospital"
{rows}
bound = 1.0

[model]
owner = "lab"
{model}
bound = 256.0

[protocol]
kind = "{protocol}"
compute = ["hospital", "lab"]
dealer = "dealer"
reveal = "{reveal}"

[ring]
frac_bits = 20

[network]
connect_s = {connect_s}
silence_s = {silence_s}
heartbeat_s = 0.5
stall_s = 100
"""

NAMES = ("hospital", "lab", "dealer")
INPUTS = {
    "own": {"rows": 'file = "FOLDER/rows.csv"', "model": 'file = "FOLDER/model.npz"'},
    # Loaded and trained before the parties have anything to say to each other.
    "breast-cancer": {
        "rows": 'set = "breast-cancer"\npart = "test"',
        "model": 'train = { set = "breast-cancer", part = "train" }',
    },
}


@pytest.fixture
def make_job(tmp_path):
    """Write a job with keys and addresses for three parties; returns its path.

    Its patience is that of a busy machine; a test that waits for the end of it asks for less.
    """

    def make(
        name="job",
        *,
        hosts=("127.0.0.1",) * 3,
        protocol="sealed",
        reveal="class",
        connect_s=60,
        silence_s=40,
        inputs="own",
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "rows.csv").write_text("a,b,c\n0.5,0,0.25\n0,1,0\n")
        np.savez(folder / "model.npz", weight=[0.8, -1.2, 0.4], bias=[0.1])
        parties = ""
        for party, host, port in zip(NAMES, hosts, free_ports(3), strict=True):
            identity = make_identity(party, folder / "keys")
            parties += f'[parties.{party}]\naddress = "{host}:{port}"\n'
            parties += f'key = "{identity.fingerprint}"\n'
        path = folder / "job.toml"
        path.write_text(
            JOB.format(
                out=folder / "out",
                parties=parties,
                protocol=protocol,
                reveal=reveal,
                connect_s=connect_s,
                silence_s=silence_s,
                **INPUTS[inputs],
            ).replace("FOLDER", str(folder))
        )
        return path

    return make
