"""How far a step on shares is from torch's: blocks of GPT-2 and LLaMA, and the loss of tokens.

    python benchmarks/run.py training/_gradient_error

One step of stochastic gradient descent on all rows; the change of every weight beside that of the
same step in floating point. Prints the relative error of all weights, and of the worst.
"""

import json

import torch
from torch import Tensor, nn
from torch.nn import functional

import tacit
from tacit.training.loop import walk_plain

WIDTH, TOKENS, WORDS, HEADS, ROWS, SIDE = 32, 16, 24, 4, 8, 8


def heads_of(x: Tensor, heads: int) -> Tensor:
    """Cut the width into heads."""
    return x.unflatten(2, (heads, SIDE)).transpose(1, 2)


class Attention(nn.Module):
    """Causal attention, with grouped keys and places that turn, or with neither."""

    def __init__(self, groups: int, turns: bool) -> None:
        super().__init__()
        self.groups, self.turns = groups, turns
        self.q, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.k, self.v = nn.Linear(WIDTH, groups * SIDE), nn.Linear(WIDTH, groups * SIDE)
        speeds = 1.0 / (1e4 ** (torch.arange(0, SIDE, 2).float() / SIDE))
        angles = torch.outer(torch.arange(TOKENS).float(), speeds).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def turned(self, x: Tensor) -> Tensor:
        """Turn pairs of numbers by the place of their token."""
        if not self.turns:
            return x
        first, second = x.chunk(2, dim=-1)
        return x * self.cos + torch.cat((-second, first), dim=-1) * self.sin

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens with those before them."""
        q = self.turned(heads_of(self.q(x), HEADS))
        k = self.turned(heads_of(self.k(x), self.groups))
        v = heads_of(self.v(x), self.groups)
        k, v = (one.repeat_interleave(HEADS // self.groups, dim=1) for one in (k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return out


class Gpt(nn.Module):
    """A block of GPT-2."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention(HEADS, turns=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        x = x + self.attention(self.first(x))
        out: Tensor = x + self.down(functional.gelu(self.up(self.second(x))))
        return out


class Llama(nn.Module):
    """A block of LLaMA."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.attention = Attention(HEADS // 2, turns=True)
        self.gate, self.up = nn.Linear(WIDTH, 80), nn.Linear(WIDTH, 80)
        self.down = nn.Linear(80, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Run the block."""
        x = x + self.attention(self.first(x))
        inner = self.second(x)
        out: Tensor = x + self.down(functional.silu(self.gate(inner)) * self.up(inner))
        return out


class Speaker(nn.Module):
    """A block with a head over words."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block, self.head = block, nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        """Score words at every token."""
        out: Tensor = self.head(self.block(x))
        return out


def main() -> None:
    """Take a step of both, under every protocol."""
    found = {}
    for name, block in (("GPT-2", Gpt), ("LLaMA", Llama)):
        for protocol in ("sealed", "permuted3"):
            torch.manual_seed(0)
            model = Speaker(block())
            x, y = torch.rand(ROWS, TOKENS, WIDTH) * 2 - 1, torch.randint(WORDS, (ROWS, TOKENS))
            owners = {"a": (x[:4], y[:4]), "b": (x[4:], y[4:])}
            trained = tacit.train(
                model,
                owners,
                rate=0.5,
                batch=ROWS - 1,
                protocol=protocol,
                cap=8.0,
            )
            hot = functional.one_hot(y, WORDS).double()
            plain, _ = walk_plain(trained.plan, x.double(), hot)
            initial, ours = trained.plan.model.initial, trained.plan.model
            given = trained.model.state_dict() if trained.model is not None else {}
            true = ours.state(plain)
            begun = ours.state({key: one.double() for key, one in initial.items()})
            errors = {key: (given[key].double() - true[key]).norm() for key in true}
            changes = {key: (true[key] - begun[key]).norm() for key in true}
            whole = [float(torch.stack(list(one.values())).norm()) for one in (errors, changes)]
            each = {
                key: float(errors[key] / changes[key])
                for key in true
                if changes[key] > 1e-5 * whole[1]
            }
            worst = max(each, key=each.__getitem__)
            found[f"{name}, {protocol}"] = {
                "relative error": round(whole[0] / whole[1], 5),
                "worst weight": f"{worst} {each[worst]:.5f}",
            }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
