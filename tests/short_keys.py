"""Ciphers with keys that are made once for all tests of a process, shorter than the default."""

from functools import cache
from itertools import cycle

from tacit.crypto.cipher import make_key
from tacit.ring import Prg

_TURNS = cycle(range(2))


def short_key(scheme, randomness, bits=2048):
    """Return one of two keys in turn: two parties that make one at a time have different ones."""
    return _kept(scheme, next(_TURNS))


@cache
def _kept(scheme, number):
    return make_key(scheme, Prg.from_os().bytes, bits=2048)
