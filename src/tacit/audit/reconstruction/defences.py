"""Defences of an update, as functions to hand to a view: noise, clipping, compression."""

import torch

from tacit.audit.reconstruction.views import Defence
from tacit.audit.reconstruction.work import Update
from tacit.errors import ConfigError


def add_noise(scale: float, *, generator: torch.Generator) -> Defence:
    """Add normal noise of standard deviation `scale` to every number.

    A stand-in for studying attacks: repeatable, and with no guarantee. Noise that protects comes
    from `tacit.dp`.
    """
    if not scale >= 0:
        raise ConfigError(f"the scale of noise must be at least 0, got {scale}")

    def defend(update: Update) -> Update:
        return tuple(
            part + scale * torch.empty(part.shape).normal_(generator=generator).to(part)
            for part in update
        )

    return defend


def clip(bound: float) -> Defence:
    """Scale an update down to an L2 norm of at most `bound`."""
    if not bound > 0:
        raise ConfigError(f"the bound of clipping must be positive, got {bound}")

    def defend(update: Update) -> Update:
        norm = torch.cat([part.flatten() for part in update]).norm()
        factor = (bound / norm.clamp_min(1e-30)).clamp_max(1.0)
        return tuple(part * factor for part in update)

    return defend


def keep_largest(share: float) -> Defence:
    """Keep this share of an update's numbers, the largest ones, and set the others to 0."""
    if not 0 < share <= 1:
        raise ConfigError(f"the share to keep lies in (0, 1], got {share}")

    def defend(update: Update) -> Update:
        flat = torch.cat([part.flatten() for part in update]).abs()
        kept = max(1, round(share * len(flat)))
        threshold = flat.topk(kept).values[-1]
        return tuple(torch.where(part.abs() >= threshold, part, 0.0) for part in update)

    return defend


def in_turn(*defences: Defence) -> Defence:
    """Apply several defences, the first one first."""

    def defend(update: Update) -> Update:
        for one in defences:
            update = one(update)
        return update

    return defend
