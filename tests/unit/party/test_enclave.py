"""Enclaves: other code, another job, an old quote or somebody else's are refused by name."""

from pathlib import Path

import pytest

import tacit
from tacit.crypto import make_identity
from tacit.errors import DisagreementError, InputError
from tacit.party import Meeting, SimulatedEnclave, attest_all, check_quote, enclave, run_threads

JOB, DATA = bytes(32), b"d" * 32


@pytest.fixture
def lab(tmp_path):
    return make_identity("lab", tmp_path)


def refuse(octets, identity, **changed):
    wanted = {"measurement": enclave.measure(JOB), "data": DATA, "key": identity.fingerprint}
    with pytest.raises(InputError) as caught:
        check_quote(octets, **{**wanted, **changed})
    return str(caught.value)


def test_a_quote_is_for_one_job_one_nonce_and_one_key(lab, tmp_path):
    inside = SimulatedEnclave(lab, JOB)
    quote = inside.attest(DATA)
    check_quote(quote, measurement=inside.measurement, data=DATA, key=lab.fingerprint)
    assert "another job" in refuse(quote, lab, measurement=enclave.measure(b"x" * 32))
    assert "an old one" in refuse(quote, lab, data=b"e" * 32)
    other = make_identity("mallory", tmp_path)
    assert "another key" in refuse(SimulatedEnclave(other, JOB).attest(DATA), lab)
    for at in range(0, len(quote), 7):  # changed anywhere, or cut
        broken = bytearray(quote)
        broken[at] ^= 1
        assert refuse(bytes(broken), lab)
    assert refuse(quote[:95], lab)
    assert refuse(b"", lab)


def test_one_byte_of_code_changes_the_measurement(tmp_path, monkeypatch):
    copy = tmp_path / "tacit"
    for path in Path(tacit.__file__).parent.rglob("*.py"):
        target = copy / path.relative_to(Path(tacit.__file__).parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    before = enclave.measure(JOB)
    monkeypatch.setattr(tacit, "__file__", str(copy / "__init__.py"))
    assert enclave.measure(JOB) == before
    file = copy / "ring" / "prg.py"
    file.write_bytes(file.read_bytes() + b"\n")
    assert enclave.measure(JOB) != before


def test_what_is_sealed_opens_for_the_same_code_and_job_alone(lab):
    sealed = SimulatedEnclave(lab, JOB).seal(b"shares", label=b"step 3")
    assert SimulatedEnclave(lab, JOB).unseal(sealed, label=b"step 3") == b"shares"
    with pytest.raises(InputError, match="does not open"):
        SimulatedEnclave(lab, b"x" * 32).unseal(sealed, label=b"step 3")
    with pytest.raises(InputError, match="does not open"):
        SimulatedEnclave(lab, JOB).unseal(sealed, label=b"step 2")


def attest(lab, inside):
    """Let one party attest itself to two others."""

    def party(session):
        mine = inside if session.me == "lab" else None
        return attest_all(session, {"lab": lab.fingerprint}, mine, job_digest=JOB)

    meeting = Meeting(parties=("ann", "bob", "lab"), job_digest=JOB)
    return run_threads(dict.fromkeys(meeting.parties, party), meeting)


def test_parties_see_a_quote_before_they_send_and_claim_nothing_from_a_simulated_one(lab):
    for claims in attest(lab, SimulatedEnclave(lab, JOB)).values():
        (claim,) = claims
        assert claim.guarantee.startswith("no guarantee: simulated")


def test_a_party_with_other_code_is_named(lab):
    with pytest.raises(DisagreementError, match=r"'lab'.*runs other code or another job"):
        attest(lab, SimulatedEnclave(lab, b"x" * 32))


def test_a_recorded_quote_does_not_serve_again(lab):
    class Replaying:
        def __init__(self):
            self.honest = SimulatedEnclave(lab, JOB)

        def attest(self, data):
            self.first = getattr(self, "first", self.honest.attest(data))
            return self.first

    with pytest.raises(DisagreementError, match=r"'lab'.*an old one"):
        attest(lab, Replaying())
