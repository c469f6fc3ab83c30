"""Ciphers behind the seam beside TenSEAL's CKKS vectors: encrypting for a sum, and weighing.

CPU time of one core. CKKS rounds and must not show a decrypted result to whoever computed; these
are exact.
"""

from collections.abc import Callable
from time import process_time

import tenseal
from bench import Case, InlinePeer

from tacit.crypto.cipher import CipherLayout, make_key
from tacit.ring import Prg


def cases(quick: bool) -> list[Case]:
    """List what is measured; `quick` leaves out the large sizes."""
    return [*_sums(10_000 if quick else 100_000), *_products((128, 128) if quick else (784, 128))]


def _sums(count: int) -> list[Case]:
    draw = Prg.from_os().bytes
    values = Prg.from_os().words((count, 1)).numpy() >> 40
    context = _ckks([60, 40, 60])
    plain = (values[:, 0] / 2**20).tolist()

    def theirs() -> object:
        return [
            tenseal.ckks_vector(context, plain[at : at + 4096]).serialize()
            for at in range(0, count, 4096)
        ]

    peer = InlinePeer("CKKS 8192 [60, 40, 60]", _seconds(theirs))
    layout = CipherLayout(rows=count, bound=1 << 24, room=1 << 31, form="sum", by_owner=True)
    found = []
    for scheme in ("bfv", "paillier"):
        key = make_key(scheme, draw)
        key.encrypt(values, layout, draw)  # tables of powers are made once

        def ours(key: object = key) -> object:
            return key.public.dump(key.encrypt(values, layout, draw))  # type: ignore[attr-defined]

        found.append(
            Case(
                name=f"{scheme}: encrypt {count:,} numbers for a sum",
                metric="CPU time",
                unit="s",
                ours=_seconds(ours),
                peers=(peer,),
                goal=0.5 if scheme == "bfv" else None,
            )
        )
    return found


def _products(shape: tuple[int, int]) -> list[Case]:
    rows, outputs = shape
    draw = Prg.from_os().bytes
    matrix = Prg.from_os().words((outputs, rows)).numpy() >> 54
    values = Prg.from_os().words((rows, 1)).numpy() >> 54
    context = _ckks([60, 40, 40, 60])
    context.generate_galois_keys()
    asked = tenseal.ckks_vector(context, values[:, 0].astype(float).tolist())
    plain = matrix.T.astype(float).tolist()
    peer = InlinePeer("TenSEAL's mm", _seconds(lambda: asked.mm(plain)))
    key = make_key("bfv", draw)
    layout = CipherLayout(rows=rows, bound=1 << 10, room=1 << 40, by_owner=True)
    sealed = key.encrypt(values, layout, draw)
    ours = _seconds(lambda: key.public.release(key.public.weigh(matrix, sealed), draw))
    return [
        Case(
            name=f"bfv: weigh by {outputs} × {rows} and release",
            metric="CPU time",
            unit="s",
            ours=ours,
            peers=(peer,),
            goal=0.01,
        )
    ]


def _ckks(bits: list[int]) -> tenseal.Context:
    context = tenseal.context(
        tenseal.SCHEME_TYPE.CKKS, poly_modulus_degree=8192, coeff_mod_bit_sizes=bits, n_threads=1
    )
    context.global_scale = 2**40
    return context


def _seconds(work: Callable[[], object]) -> Callable[[], float]:
    def measure() -> float:
        began = process_time()
        work()
        return process_time() - began

    return measure
