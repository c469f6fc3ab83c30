"""A party that joins others: in Python as a process of its own, or as a thread."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

import tacit
from support.processes import CONTEXT
from tacit.crypto import load_identity
from tacit.data import load_dataset, split_dataset
from tacit.inference import Crew, predict, table_of, train_logistic
from tacit.inference.spec import InferData, InferModel, InferProtection, InferRing, InferSpec
from tacit.mpc import find_protocol
from tacit.party import Meeting, Progress, joined, run_threads
from tacit.transport import Patience, Peer

# A party of a job: what it gives and gets is in files of arrays


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


def start_party(job, me, folder, **arrays):
    """Start such a process."""
    given, got = folder / f"{me}-given.npz", folder / f"{me}-got.npz"
    np.savez(given, **arrays)
    process = CONTEXT.Process(target=take_part, args=(str(job), me, str(given), str(got)))
    process.start()
    return process


def read_party(me, folder):
    """Return what a party got."""
    with np.load(folder / f"{me}-got.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


# A party of a private model run

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


def join_private(me, folder, listener, protocol):
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


# The job of the examples of private prediction

NAMES = ("hospital", "lab", "dealer")


def predict_in_threads(*, protocol, reveal, frac_bits=20):
    """Return the answers that the hospital gets from the lab's model."""
    data = load_dataset("breast-cancer", ())
    features = table_of(split_dataset(data, part="test", seed=0))
    weights = train_logistic(split_dataset(data, part="train", seed=0))
    hospital, lab, dealer = NAMES
    spec = InferSpec(
        data=InferData(owner=hospital),
        model=InferModel(owner=lab),
        protocol=InferProtection(kind=protocol, dealer=dealer, reveal=reveal),
        ring=InferRing(frac_bits=frac_bits),
    )

    def party(session):
        return predict(
            session,
            spec,
            features=features if session.me == "hospital" else None,
            weights=weights if session.me == "lab" else None,
        )

    meeting = Meeting(parties=NAMES, job_digest=b"d" * 32)
    return run_threads(dict.fromkeys(NAMES, party), meeting)["hospital"].values.tolist()
