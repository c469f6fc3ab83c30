"""Which attacks fit a round: those that can work on its model, within a budget of steps."""

import math

from torch import nn

from tacit.audit.reconstruction.analytic import invert_linear
from tacit.audit.reconstruction.game import Round
from tacit.audit.reconstruction.matching import MatchDirection, guess_blindly
from tacit.audit.reconstruction.newton import LARGEST_JACOBIAN, MatchNewton
from tacit.audit.reconstruction.views import Rebuilt, SeenUpdate
from tacit.audit.views import Attack
from tacit.errors import ConfigError

_KINKED = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


def choose_attacks(target: Round, *, steps: int) -> dict[str, Attack[SeenUpdate, Rebuilt]]:
    """Return the attacks that are worth trying on a round, by name, "blind" last.

    Args:
        target: the round.
        steps: of the search by cosine; a few hundred for a first answer, thousands for pictures.
    """
    if steps < 1:
        raise ConfigError(f"the search takes at least one step, got {steps}")
    found: dict[str, Attack[SeenUpdate, Rebuilt]] = {}
    model = target.model
    weighty = [m for m in model.modules() if not list(m.children()) and list(m.parameters())]
    if weighty and isinstance(weighty[0], nn.Linear) and weighty[0].bias is not None:
        found["first layer"] = invert_linear
    unknowns = target.per_client * math.prod(target.rows.shape[1:])
    known = sum(p.numel() for p in model.parameters() if p.requires_grad)
    is_smooth = not any(isinstance(m, _KINKED) for m in model.modules())
    if is_smooth and unknowns <= known and unknowns * known <= LARGEST_JACOBIAN:
        found["Levenberg–Marquardt"] = MatchNewton(restarts=2)
    is_picture = target.rows.ndim == 4
    smoothness = 0.1 if is_picture else 0.0
    found["cosine + TV"] = MatchDirection(steps=steps, restarts=1, smoothness=smoothness)
    found["blind"] = guess_blindly
    return found
