"""How the next token is chosen among scores, by what only the user or the dealer knows."""

from typing import TypeVar

from tacit.mpc.ops import ProtocolOps

V = TypeVar("V")

NOISE_BOUND = 64.0
HOTTEST = 2.0
"""The highest temperature; noise is at most 64 with it."""
PENALTY_BOUND = 8.0


def adjusted(ops: ProtocolOps[V], scores: V, *, user: str) -> V:
    """Scale negative and positive scores apart and add noise, all of it the user's secret.

    With noise of Gumbel's distribution times a temperature, the largest of the sums is a draw
    from the softmax at that temperature.
    """
    vocab = ops.shape(scores)[-1]
    slopes = ops.input("slopes", owner=user, shape=(2, vocab), bound=PENALTY_BOUND)
    noise = ops.input("noise", owner=user, shape=(1, vocab), bound=NOISE_BOUND)
    both = ops.concatenate((scores, ops.relu(scores)), dim=0)
    scaled = ops.reshape(ops.sum(ops.mul(both, slopes), dim=0), (1, vocab))
    return ops.normalise_scale(ops.add(scaled, noise))


def drawn(ops: ProtocolOps[V], scores: V, *, user: str, dealer: str | None) -> V:
    """Add the dealer's noise at the user's temperature, and nothing else of the user's.

    If the ``dealer`` is gone, its noise lies in shares with the material.
    """
    shape, bound = (1, ops.shape(scores)[-1]), NOISE_BOUND / HOTTEST
    if dealer is None:
        noise = ops.resume("noise", shape=shape, bound=bound)
    else:
        noise = ops.input("noise", owner=dealer, shape=shape, bound=bound)
    heat = ops.input("temperature", owner=user, shape=(1, 1), bound=HOTTEST)
    return ops.normalise_scale(ops.add(scores, ops.mul(noise, heat)))
