"""Enclaves: parties that prove to the others which code they run, where hardware can prove that.

An enclave is measured (a hash of the code and of the job), attests that measurement to a verifier
(a quote that covers the verifier's fresh nonce and the key of the very channel it is sent over),
and seals what it keeps to itself and its measurement.

What falls if an enclave falls: nothing of the privacy of a protocol on shares, which never rested
on it; but the belief that the party follows the protocol does, and with it whatever was promised
against a malicious one. A simulated enclave starts out fallen: it proves nothing about its host.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, final

import torch
from torch import Tensor

import tacit
from tacit.crypto import Identity, derive, fingerprint, seal, sign, unseal, verify_signature
from tacit.errors import DisagreementError, InputError
from tacit.party.session import Session
from tacit.result import Claim

_HASH_BYTES, _NONCE_BYTES, _SIGNATURE_BYTES = 32, 32, 64
_LONGEST_CERTIFICATE_BYTES = 4096
_FILE = b"file "


class Enclave(Protocol):
    """A place where code runs that can be measured, attested and sealed to."""

    @property
    def measurement(self) -> bytes:
        """Return the hash of what runs here."""
        ...

    def attest(self, data: bytes) -> bytes:
        """Return a quote: a proof that what was measured runs here, bound to ``data``."""
        ...

    def seal(self, secret: bytes, *, label: bytes) -> bytes:
        """Encrypt what only this enclave with this measurement can read again."""
        ...

    def unseal(self, sealed: bytes, *, label: bytes) -> bytes:
        """Decrypt it."""
        ...


@final
class SimulatedEnclave:
    """An enclave without hardware, for trying out everything around it.

    Guarantee: none. Quotes are signed with the party's own key, so its host can sign whatever it
    likes; what is sealed can be read by whoever has the key file. Where the host is honest, a
    change of one byte of the code or of the job changes the measurement.
    """

    def __init__(self, identity: Identity, job_digest: bytes) -> None:
        self._identity = identity
        self._measurement = measure(job_digest)

    @property
    def measurement(self) -> bytes:
        """Return the hash of this package and of the job."""
        return self._measurement

    def attest(self, data: bytes) -> bytes:
        """Sign the measurement and what it is bound to."""
        signature, certificate = sign(self._identity, _signed(self._measurement, data))
        return self._measurement + signature + certificate

    def seal(self, secret: bytes, *, label: bytes) -> bytes:
        """Encrypt under a key of the identity and the measurement."""
        return seal(self._key(), secret, associated=label)

    def unseal(self, sealed: bytes, *, label: bytes) -> bytes:
        """Decrypt it; refused if the code or the job has changed since."""
        return unseal(self._key(), sealed, associated=label)

    def _key(self) -> bytes:
        context = b"tacit simulated enclave " + self._measurement
        return derive(self._identity.key_file.read_bytes(), context=context)


def seal_file(enclave: Enclave, source: Path, target: Path) -> None:
    """Write a copy of a file, such as weights, that this enclave alone can read again.

    Guarantee: that of the enclave's `seal`; of a simulated one none.
    """
    target.write_bytes(enclave.seal(source.read_bytes(), label=_FILE + target.name.encode()))


def unseal_file(enclave: Enclave, path: Path) -> bytes:
    """Read a sealed file; refused under another name, other code or another job.

    Raises:
        InputError: it does not open.
    """
    return enclave.unseal(path.read_bytes(), label=_FILE + path.name.encode())


def measure(job_digest: bytes) -> bytes:
    """Hash the code of this package and a job: what everyone who runs both measures alike."""
    root = Path(tacit.__file__).parent
    state = hashlib.sha256(b"tacit measurement 1" + job_digest)
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix().encode()
        state.update(hashlib.sha256(name).digest())
        state.update(hashlib.sha256(path.read_bytes()).digest())
    return state.digest()


def check_quote(octets: bytes, *, measurement: bytes, data: bytes, key: str) -> None:
    """Make sure that a quote is about this measurement and these data, signed by this key.

    It is a measurement, a signature of it and of what it is bound to, and the certificate.

    Raises:
        InputError: it is not; says what is wrong.
    """
    end = _HASH_BYTES + _SIGNATURE_BYTES
    measured, signature, certificate = octets[:_HASH_BYTES], octets[_HASH_BYTES:end], octets[end:]
    if not certificate or fingerprint(certificate) != key:
        raise InputError("its quote is signed with another key than the one of its link")
    if not verify_signature(certificate, _signed(measured, data), signature):
        raise InputError("its quote is not for this session: changed, or an old one")
    if measured != measurement:
        raise InputError(
            f"its enclave measures {measured.hex()[:16]}…, wanted {measurement.hex()[:16]}"
            "…: it runs other code or another job"
        )


def attest_all(
    session: Session, enclaves: Mapping[str, str], mine: Enclave | None, *, job_digest: bytes
) -> tuple[Claim, ...]:
    """Have every party with an enclave attest itself to all others, before anything else is sent.

    Args:
        session: my end of the job.
        enclaves: the parties with an enclave, and the key by which each is known on its links.
        mine: my own enclave, if I have one.
        job_digest: what is measured beside the code.

    Returns:
        What holds then: for a simulated enclave, nothing.

    Raises:
        DisagreementError: a party runs other code or another job, or cannot prove that it does not.
    """
    nonces = {name: os.urandom(_NONCE_BYTES) for name in enclaves if name != session.me}
    for name, nonce in nonces.items():
        session.send(name, "setup/attest.nonce", _to_tensor(nonce), phase="setup")
    if mine is not None:
        for peer in session.peers:
            nonce = _to_bytes(
                session.recv(peer, "setup/attest.nonce", (_NONCE_BYTES,), dtype=torch.uint8)
            )
            quote = mine.attest(_bound(nonce, session.me, enclaves[session.me]))
            padded = quote.ljust(_LONGEST_CERTIFICATE_BYTES, b"\0")
            length = len(quote).to_bytes(4, "big")
            session.send(peer, "setup/attest.quote", _to_tensor(length + padded), phase="setup")
    wanted = measure(job_digest)
    for name, nonce in nonces.items():
        shape = (4 + _LONGEST_CERTIFICATE_BYTES,)
        octets = _to_bytes(session.recv(name, "setup/attest.quote", shape, dtype=torch.uint8))
        quote = octets[4 : 4 + int.from_bytes(octets[:4], "big")]
        data = _bound(nonce, name, enclaves[name])
        try:
            check_quote(quote, measurement=wanted, data=data, key=enclaves[name])
        except InputError as error:
            raise DisagreementError(name, str(error)) from error
    return tuple(_claim(name) for name in enclaves)


def _claim(name: str) -> Claim:
    return Claim(
        subject=f"{name} runs in an enclave",
        guarantee="no guarantee: simulated, it proves nothing about the host",
        assumptions=(
            "privacy rests on the protocol alone, as without an enclave",
            f"that {name} follows the protocol is assumed (semi-honest), not proved",
        ),
    )


def _bound(nonce: bytes, name: str, key: str) -> bytes:
    """Say what a quote is for: one verifier's nonce, and the channel with this key."""
    return hashlib.sha256(b"tacit quote 1" + nonce + f"{name} {key}".encode()).digest()


def _signed(measurement: bytes, data: bytes) -> bytes:
    return b"tacit enclave quote 1" + measurement + data


def _to_tensor(octets: bytes) -> Tensor:
    return torch.frombuffer(bytearray(octets), dtype=torch.uint8)


def _to_bytes(values: Tensor) -> bytes:
    return values.numpy().tobytes()
