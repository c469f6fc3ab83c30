"""A module made private, between real processes that meet over TLS: three, or two alone."""

import json
from contextlib import ExitStack

import numpy as np
import pytest
import torch

from support.parties import crew_of, join_private, network, rows
from support.processes import CONTEXT
from tacit.crypto import make_identity
from tacit.mpc import PROTOCOLS
from tacit.mpc.registry import NO_DEALER
from tacit.transport import listen


@pytest.mark.parametrize(
    "protocol",
    [
        "sealed",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in (*PROTOCOLS, NO_DEALER)
            if one != "sealed"
        ),
    ],
)
def test_processes_compute_a_module_of_which_only_the_lab_has_the_weights(tmp_path, protocol):
    parties = crew_of(protocol).parties
    keys = {name: make_identity(name, tmp_path).fingerprint for name in parties}
    with ExitStack() as stack:
        listeners = {name: stack.enter_context(listen("127.0.0.1", 0)) for name in parties}
        book = {
            name: (listener.getsockname()[1], keys[name]) for name, listener in listeners.items()
        }
        (tmp_path / "peers.json").write_text(json.dumps(book))
        started = [
            CONTEXT.Process(target=join_private, args=(name, tmp_path, listener, protocol))
            for name, listener in listeners.items()
        ]
        for one in started:
            one.start()
        for one in started:
            one.join(240)
    assert [one.exitcode for one in started] == [0] * len(parties)
    with torch.no_grad():
        wanted = network(0)(rows()).numpy()
    assert np.abs(np.load(tmp_path / "values.npy") - wanted).max() < 2e-2
