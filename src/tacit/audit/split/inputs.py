"""Attacks on the inputs of a split model: a decoder from the cut layer back to the row."""

from math import prod

import torch
from torch import Tensor, nn

from tacit.audit.split.views import SeenCut

_STEPS = 400


def reconstruct(seen: SeenCut, *, generator: torch.Generator) -> Tensor:
    """Guess inputs with a decoder network that is trained on the pairs that leaked (3.4.4)."""
    shape = seen.leaked_inputs.shape[1:]
    width = seen.leaked.shape[1]
    wanted = seen.leaked_inputs.flatten(1).float()
    centre, scale = seen.leaked.mean(0), seen.leaked.std(0).clamp(min=1e-6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.empty(()).uniform_(generator=generator) * 2**31))
        hidden, last = nn.Linear(width, 256), nn.Linear(256, prod(shape))
    with torch.no_grad():
        # Start at the mean input: what one guesses without looking at the cut layer.
        last.weight.mul_(0.1)
        last.bias.copy_(wanted.mean(0))
    decoder = nn.Sequential(hidden, nn.LeakyReLU(), last).to(seen.leaked.device)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=2e-3, weight_decay=1e-5)
    held_out = max(len(wanted) // 10, 1)
    best, kept = torch.inf, {k: v.clone() for k, v in decoder.state_dict().items()}
    x = (seen.leaked - centre) / scale
    for step in range(_STEPS):
        optimiser.zero_grad(set_to_none=True)
        loss = (decoder(x[held_out:]) - wanted[held_out:]).square().mean()
        loss.backward()
        optimiser.step()
        if step % 10 == 9:
            with torch.no_grad():
                error = float((decoder(x[:held_out]) - wanted[:held_out]).square().mean())
            if error < best:
                best, kept = error, {k: v.clone() for k, v in decoder.state_dict().items()}
    decoder.load_state_dict(kept)
    with torch.no_grad():
        guess: Tensor = decoder((seen.targets - centre) / scale)
    return guess.view(-1, *shape)
