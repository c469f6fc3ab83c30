import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tacit.errors import ConfigError, FrameError, LinkClosed, LinkError
from tacit.transport import Fault, Meter, Patience, faulty_pair, frame_bytes
from tacit.transport.frame import HEADER

PATIENCE = Patience(silence_s=60, heartbeat_s=0.1, stall_s=200)


def run(*faults: Fault, frames: int = 5, size: int = 100) -> list[bytes]:
    """Send frames from ann to bob and return what bob gets, up to an error."""
    ann, bob = faulty_pair(
        "ann",
        "bob",
        faults={"ann": faults},
        meter_a=Meter("ann"),
        meter_b=Meter("bob"),
        patience=PATIENCE,
    )

    def send() -> None:
        for i in range(frames):
            ann.send("x/x", frame_bytes(bytes([i]) * size))

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            return [bytes(bob.recv("x/x").data[:1]) for _ in range(frames)]
        finally:
            assert isinstance(sending.exception(200), LinkError | None)
            bob.close()
            ann.close()


def test_no_fault_changes_nothing():
    assert run() == [b"\0", b"\1", b"\2", b"\3", b"\4"]


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("size", [0, 100, 300_000])
def test_a_dropped_frame_is_noticed(n, size):
    with pytest.raises(FrameError, match=r"were lost"):
        run(Fault(kind="drop", frame=n), size=size)


@pytest.mark.parametrize("n", [0, 2])
def test_a_duplicated_frame_is_noticed(n):
    with pytest.raises(FrameError, match=r"came where \d+ was due: repeated"):
        run(Fault(kind="duplicate", frame=n))


# Bytes 8 to 11 are the chain depth, which any value but 0 fits.
@pytest.mark.parametrize("offset", {*range(HEADER.size + 3)} - {8, 9, 10, 11})
def test_a_corrupt_head_is_noticed(offset):
    with pytest.raises(LinkError):
        run(Fault(kind="corrupt", frame=1, offset=offset))


@pytest.mark.parametrize("kind", ["kill", "truncate"])
@pytest.mark.parametrize("size", [10, 1_000_000])
def test_a_cut_stream_is_noticed(kind, size):
    with pytest.raises(LinkClosed) as caught:
        run(Fault(kind=kind, frame=3), size=size)
    assert caught.value.party == "ann"


def test_a_delay_delays_and_does_not_break():
    begun = time.monotonic()
    assert len(run(Fault(kind="delay", frame=1, seconds=0.2))) == 5
    assert time.monotonic() - begun >= 0.2


def test_faults_name_a_party_of_the_pair_and_one_per_frame():
    meters = {"meter_a": Meter("ann"), "meter_b": Meter("bob")}
    with pytest.raises(ConfigError, match="cat"):
        faulty_pair("ann", "bob", faults={"cat": []}, **meters)
    with pytest.raises(ConfigError, match="one fault only"):
        run(Fault(kind="drop", frame=1), Fault(kind="kill", frame=1))
