"""The decoder against everything a peer can send. About 119,000 spoiled inputs in all."""

import contextlib
import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import FrameError, LinkClosed
from tacit.transport import DTYPE_BYTES, Frame, LinkLimits, frame_bytes
from tacit.transport.frame import DATA, HEADER, Packet, control, fail, make_head
from tacit.transport.stream import BUFFER_BYTES, StreamIntake

LIMITS = LinkLimits(max_frame_bytes=1 << 16)


class Bytes:
    """A byte source over a buffer, handing out at most ``step`` bytes at a time."""

    def __init__(self, data: bytes, step: int = 1 << 20) -> None:
        self.data = memoryview(data)
        self.step = step

    def read_first(self, buffer: memoryview) -> int:
        return self.read_into(buffer)

    def read_into(self, buffer: memoryview) -> int:
        count = min(self.step, len(buffer), len(self.data))
        buffer[:count] = self.data[:count]
        self.data = self.data[count:]
        return count

    def is_ready(self) -> bool:
        return True

    def close(self) -> None:
        pass


def encode(packet: Packet, sequence: int) -> bytes:
    head = packet.head
    header = HEADER.pack(head.static, packet.depth, sequence, head.payload_bytes)
    return header + head.label + bytes(packet.frame.data)


def data_packet(tag: str, frame: Frame, depth: int = 1) -> Packet:
    return Packet(make_head(DATA, "online", tag, frame.dtype, frame.shape), depth, frame)


def read_all(data: bytes, *, step: int = 1 << 20, limits: LinkLimits = LIMITS) -> list[Packet]:
    """Decode until the stream ends; only a link error may come out."""
    intake = StreamIntake(Bytes(data, step), peer="eve", limits=limits)
    packets = []
    try:
        while True:
            packet = intake.take()
            if packet is not None:
                packets.append(packet)
            else:
                intake.fill()
    except LinkClosed:
        return packets


frames = st.builds(
    lambda dtype, shape: Frame(
        dtype, shape, memoryview(bytes(Frame(dtype, shape, memoryview(b"")).payload_bytes))
    ),
    st.sampled_from(sorted(DTYPE_BYTES)),
    st.lists(st.integers(0, 6), max_size=4).map(tuple),
)


@settings(max_examples=200)
@given(st.lists(frames, max_size=6), st.integers(1, 200))
def test_frames_survive_any_way_of_cutting_the_stream(sent, step):
    data = b"".join(encode(data_packet("a/b", frame), i) for i, frame in enumerate(sent))
    got = [packet.frame for packet in read_all(data, step=step)]
    assert [(f.dtype, f.shape, bytes(f.data)) for f in got] == [
        (f.dtype, f.shape, bytes(f.data)) for f in sent
    ]


@pytest.mark.parametrize("size", [0, 1, BUFFER_BYTES - 60, BUFFER_BYTES, 3 * BUFFER_BYTES + 1])
@pytest.mark.parametrize("step", [1000, 1 << 20])
def test_payloads_around_the_size_of_the_buffer_survive(size, step):
    draw = seeded(size)
    sent = [draw.randbytes(size) for _ in range(3)]
    data = b"".join(encode(data_packet("a/b", frame_bytes(load)), i) for i, load in enumerate(sent))
    got = read_all(data, step=step, limits=LinkLimits())
    assert [bytes(packet.frame.data) for packet in got] == sent


@pytest.mark.parametrize(
    ("sequence", "message"),
    [(5, "frame 5 came where 1 was due: 4 were lost"), (0, "frame 0 came where 1 was due: rep")],
)
def test_lost_and_repeated_frames_are_told_apart(sequence, message):
    first, again = (encode(data_packet("a/b", frame_bytes(b"x")), i) for i in (0, sequence))
    with pytest.raises(FrameError, match=message) as caught:
        read_all(first + again)
    assert caught.value.party == "eve"


def test_a_depth_that_contradicts_the_phase_is_refused():
    with pytest.raises(FrameError, match="chain depth 0 in phase online"):
        read_all(encode(data_packet("a/b", frame_bytes(b""), depth=0), 0))


def test_a_payload_that_contradicts_the_shape_is_refused_before_it_is_read():
    head = make_head(DATA, "online", "a/b", "i64", (3,))
    with pytest.raises(FrameError, match=r"announces 25 bytes for i64 \(3,\)"):
        read_all(HEADER.pack(head.static, 1, 0, 25) + head.label)


def test_no_frame_on_the_way_is_larger_than_what_may_be_kept():
    few = LinkLimits(prefetch_bytes=1 << 16, stash_bytes=1 << 16)
    fits, not_so = (make_head(DATA, "online", "a/b", "u8", (size,)) for size in (1 << 16, 65537))
    assert read_all(HEADER.pack(fits.static, 1, 0, 1 << 16) + fits.label, limits=few) == []
    with pytest.raises(FrameError, match="more than the 65536 that one frame may have"):
        read_all(HEADER.pack(not_so.static, 1, 0, 65537) + not_so.label, limits=few)


@pytest.mark.parametrize("shape", [(1 << 30,), (1 << 40,), (1 << 63, 2), ((1 << 64) - 1,) * 8])
def test_an_oversized_frame_allocates_nothing(shape):
    head = make_head(DATA, "online", "a/b", "u8", shape)
    size = min(head.payload_bytes, (1 << 64) - 1)
    data = HEADER.pack(head.static, 1, 0, size) + head.label
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match="announces"):
            read_all(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * BUFFER_BYTES


def test_random_bytes_give_only_link_errors():
    draw = seeded(1)
    for _ in range(30_000):
        with pytest.raises(FrameError):
            read_all(b"TF\x01" + draw.randbytes(draw.randrange(25, 200)))


def test_mutated_frames_give_only_link_errors_and_bounded_memory():
    draw = seeded(2)
    seeds = [
        *(encode(data_packet("mul/7", frame_bytes(bytes(n)), 3), 0) for n in (0, 5, 64, 3000)),
        encode(data_packet("m", Frame("i64", (2, 3, 4), memoryview(bytes(192)))), 0),
        encode(control(2), 0) + encode(control(3), 1),
        encode(fail("dealer", "no memory"), 0),
    ]
    refused = 0
    tracemalloc.start()
    try:
        for number in range(80_000):
            if number == 16_000:  # following every allocation is most of the time
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            try:
                read_all(mutate(draw.choice(seeds), draw))
            except FrameError:
                refused += 1
    finally:
        tracemalloc.stop()
    assert refused > 20_000
    # One frame at the limit, the buffer, the remembered heads and the seeds.
    assert peak < 8 << 20


def test_every_truncation_ends_as_a_closed_link():
    data = b"".join(encode(data_packet("a/b", frame_bytes(bytes(50))), i) for i in range(100))
    size = len(data) // 100
    for cut in range(len(data)):
        assert len(read_all(data[:cut])) == cut // size


@settings(max_examples=300)
@given(st.binary(max_size=300), st.integers(1, 40))
def test_arbitrary_streams_give_only_link_errors(data, step):
    with contextlib.suppress(FrameError):
        read_all(data, step=step)


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311  a fuzzer keeps no secret


def mutate(frame: bytes, draw: random.Random) -> bytes:
    spoiled = bytearray(frame)
    match draw.randrange(5):
        case 0:
            for _ in range(draw.randrange(1, 4)):
                spoiled[draw.randrange(min(len(spoiled), 60))] = draw.randrange(256)
        case 1:
            del spoiled[draw.randrange(len(spoiled)) :]
        case 2:
            at = draw.randrange(len(spoiled))
            spoiled[at:at] = draw.randbytes(draw.randrange(1, 20))
        case 3:
            struct.pack_into("<Q", spoiled, 20, draw.choice((1 << 63, 1 << 40, 1 << 16, 1)))
        case _:
            spoiled *= 2
    return bytes(spoiled)
