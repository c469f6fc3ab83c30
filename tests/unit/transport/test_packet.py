from hypothesis import given
from hypothesis import strategies as st

from tacit.transport.frame import MAX_FAIL_BYTES, clean, control, fail, read_fail


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
