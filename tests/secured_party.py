"""One party of a private model run, for a process of its own."""

import json
from dataclasses import replace

import numpy as np
import torch
from torch import nn

import tacit
from tacit.crypto import load_identity
from tacit.inference import Crew
from tacit.mpc import find_protocol
from tacit.party import Meeting, Progress, joined
from tacit.transport import Patience, Peer

CREW = Crew(client="hospital", server="lab", dealer="notary")


def crew_of(protocol):
    """Return who takes part under a protocol."""
    return CREW if find_protocol(protocol).has_dealer else replace(CREW, dealer=None)


def network(seed):
    """Make a Transformer layer with a head, from a seed that only its owner uses."""
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(24, 2)).eval()


def rows():
    """Make the input."""
    return torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(9)) * 2 - 1


def main(me, folder, listener, protocol):
    """Join the others over TLS and take part."""
    book = json.loads((folder / "peers.json").read_text())
    peers = {
        name: Peer(("127.0.0.1", port), key) for name, (port, key) in book.items() if name != me
    }
    private = tacit.secure(network(0 if me == "lab" else 1), protocol=protocol, crew=CREW)
    parties = crew_of(protocol).parties
    with joined(
        me,
        Meeting(
            parties=parties,
            job_digest=b"secured".ljust(32),
            patience=Patience(connect_s=120, silence_s=60),
        ),
        peers=peers,
        identity=load_identity(folder, me),
        listener=listener,
        progress=Progress(),
    ) as session:
        answer = private.join(session, rows() if me == "hospital" else None)
        session.finish()
    if answer.values is not None:
        np.save(folder / "values.npy", answer.values.numpy())
