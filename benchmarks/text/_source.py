"""The source's selective optimiser (algorithm 5.2) and selective decoding (5.3), as they stand.

No guarantee. 5.2: representations of unmarked tokens depend on marked ones through attention, and
gradients of unmarked targets are released as they are; 5.3: whether noise is added depends on the
scores without noise, and scores that are let through are exact. They are here to be measured.
"""

import torch
from torch import Tensor, nn

from tacit.dp import ADD_REMOVE_MARKS, Unaccountable
from tacit.dp.ghost import Ghost
from tacit.text.corpus import Marked, collate, cut
from tacit.text.tune import token_losses

EVENT = Unaccountable(
    reason="attention carries marked tokens into gradients that are released without noise",
    relation=ADD_REMOVE_MARKS,
)


def selective_sgd(
    module: nn.Module,
    corpus: Marked,
    *,
    epochs: int,
    rate: float,
    batch: int,
    length: int,
    sigma: float,
    clip: float,
    seed: int,
) -> Unaccountable:
    """Train in place: noise on embeddings and on gradients of marked tokens, nothing on others."""
    device = next(module.parameters()).device
    chance = torch.Generator(device).manual_seed(seed)
    module.embed.requires_grad_(False)  # the source keeps them fixed
    rows = [
        (row, cut(text.ids, [float(p) for p in text.is_private], length=length)[i])
        for text in corpus.texts
        for i, row in enumerate(cut(text.ids, [1.0] * len(text.ids), length=length))
    ]
    marks = torch.zeros(0)

    def noisy(layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
        norms = output.norm(dim=-1, keepdim=True)
        clipped = output * (clip / norms.clamp_min(1e-9)).clamp_max(1.0)
        noise = torch.empty_like(output).normal_(generator=chance) * sigma * clip
        return torch.where(marks[..., : output.shape[-2], None] > 0, clipped + noise, output)

    hook = module.embed.register_forward_hook(noisy)
    ghost = Ghost(module)
    ghost.settle()  # what is drawn between its layers differs from call to call
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=rate)
    total, done = epochs * -(-len(rows) // batch), 0
    for _ in range(epochs):
        order = torch.empty(len(rows), device=device).uniform_(generator=chance).argsort().tolist()
        for at in range(0, len(rows), batch):
            some = [rows[i] for i in order[at : at + batch]]
            ids, every = (one.to(device) for one in collate([[row] for row, _ in some]))
            marks = collate([[private] for _, private in some])[1].to(device)
            for group in optimizer.param_groups:
                group["lr"] = rate * (1 - 0.9 * done / total)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.bfloat16):
                losses = token_losses(module, ids)
            public = (every - marks).clamp_min(0)[..., 1:]
            torch.autograd.backward((losses * public).sum() / public.sum().clamp_min(1.0))
            ghost.forget()
            private = float(marks[..., 1:].sum())
            if private:
                with torch.autocast(device.type, torch.bfloat16):
                    losses = token_losses(module, ids)
                found = ghost.clipped_sum((losses * marks[..., 1:]).flatten(1).sum(1), clip)
                for name, parameter in ghost.parameters.items():
                    if name in found:
                        noise = torch.empty_like(parameter).normal_(generator=chance) * sigma * clip
                        step = (found[name] + noise) / private
                        parameter.grad = step if parameter.grad is None else parameter.grad + step
            optimizer.step()
            done += 1
    hook.remove()
    ghost.remove()
    module.embed.requires_grad_(True)
    return EVENT


def selective_decoding(fires_on: list[int], *, sigma: float, clip: float, seed: int):
    """Return the defence: where the best token is marked, min-max, clip to a norm, noise."""
    chances: dict[torch.device, torch.Generator] = {}

    def defend(scores: Tensor) -> Tensor:
        chance = chances.setdefault(scores.device, torch.Generator(scores.device).manual_seed(seed))
        fires = torch.isin(scores.argmax(-1), torch.tensor(fires_on, device=scores.device))
        low, high = scores.amin(-1, keepdim=True), scores.amax(-1, keepdim=True)
        scaled = (scores - low) / (high - low).clamp_min(1e-9)
        scaled = scaled * (clip / scaled.norm(dim=-1, keepdim=True)).clamp_max(1.0)
        noise = torch.empty_like(scaled).normal_(generator=chance) * sigma * clip
        return torch.where(fires[..., None], scaled + noise, scores)

    return defend
