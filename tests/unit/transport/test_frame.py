import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import InputError
from tacit.result import PHASES
from tacit.transport.frame import (
    BYE,
    DATA,
    DTYPE_BYTES,
    FAIL,
    HEARTBEAT,
    MAX_FAIL_BYTES,
    BadHeadError,
    clean,
    control,
    decode_head,
    fail,
    label_bytes,
    make_head,
    read_fail,
)

TAGS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=64)


@given(
    phase=st.sampled_from(PHASES),
    tag=TAGS,
    dtype=st.sampled_from(sorted(DTYPE_BYTES)),
    shape=st.lists(st.integers(0, 2**64 - 1), max_size=8).map(tuple),
)
def test_a_head_survives_encoding(phase, tag, dtype, shape):
    head = make_head(DATA, phase, tag, dtype, shape)
    assert label_bytes(head.static) == len(head.label)
    again = decode_head(head.static, head.label)
    assert again == head
    assert (again.tag, again.phase, again.dtype, again.shape) == (tag, phase, dtype, shape)


def test_the_channel_ends_at_the_first_slash():
    assert make_head(DATA, "online", "mul/3/x", "u8", ()).channel == "mul"
    assert make_head(DATA, "online", "mul", "u8", ()).channel == "mul"


@pytest.mark.parametrize(
    ("phase", "tag", "dtype", "shape"),
    [
        ("later", "x", "u8", ()),
        ("online", "", "u8", ()),
        ("online", "é", "u8", ()),
        ("online", "x" * 65, "u8", ()),
        ("online", "x", "complex", ()),
        ("online", "x", "u8", (1,) * 9),
        ("online", "x", "u8", (-1,)),
        ("online", "x", "u8", (2**64,)),
    ],
)
def test_what_cannot_travel_is_not_encoded(phase, tag, dtype, shape):
    with pytest.raises(InputError):
        make_head(DATA, phase, tag, dtype, shape)


@given(st.binary(min_size=8, max_size=8))
def test_random_first_bytes_are_refused(static):
    with pytest.raises(BadHeadError):
        label_bytes(static)


@pytest.mark.parametrize("position", range(8))
def test_every_byte_of_the_first_field_counts(position):
    head = make_head(DATA, "online", "ab/c", "i64", (2, 3))
    static = bytearray(head.static)
    static[position] ^= 0xFF
    with pytest.raises(BadHeadError):
        label_bytes(bytes(static))


@pytest.mark.parametrize("kind", [HEARTBEAT, BYE])
def test_a_word_without_content_has_no_payload(kind):
    head = make_head(kind, "setup", "", "u8", (0,))
    with pytest.raises(BadHeadError, match="control frame"):
        decode_head(head.static, (1).to_bytes(8, "little"))


def test_a_failure_may_not_be_long():
    head = make_head(FAIL, "setup", "", "u8", (4096,))
    with pytest.raises(BadHeadError, match="4097 bytes"):
        decode_head(head.static, (4097).to_bytes(8, "little"))


@given(st.text(max_size=3000), st.text(max_size=3000))
def test_a_failure_always_fits_and_is_always_printable(party, reason):
    packet = fail(party, reason)
    assert packet.head.payload_bytes <= MAX_FAIL_BYTES
    got_party, got_reason = read_fail(packet)
    assert got_party.isprintable()
    assert got_party
    assert got_reason.isprintable()
    assert got_reason


@given(st.binary(max_size=200))
def test_whatever_a_peer_writes_into_a_failure_can_be_shown(raw):
    assert all(part.isprintable() for part in read_fail(control(4, raw)))


def test_plain_text_survives_cleaning():
    assert clean("disc full: 3 × 10⁹ bytes", 100) == "disc full: 3 × 10⁹ bytes"
    assert clean("two\nlines\tand \x1b[0m", 100) == "two lines and ?[0m"
    assert clean("x" * 10, 5) == "xxxx…"
