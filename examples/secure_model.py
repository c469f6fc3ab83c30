"""Make a torch model private with one call, under three protocols.

Prints, for each protocol, the largest difference from the plaintext model (below 1e-3), the rounds
and bytes online, whether they were as forecast, and what the protocol showed to whom on the way:
nothing under sealed, permuted activations to the dealer under permuted3 and to the client under
permuted2.
"""

import torch
from torch import nn

import tacit
from tacit.mpc import PROTOCOLS
from tacit.party import without_setup


class Classifier(nn.Module):
    """A small network with a residual, as one would write it without thinking of privacy."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Give three scores per row."""
        return self.head(torch.relu(x + self.inner(x)))


def main() -> None:
    """Run the same module under every protocol."""
    torch.manual_seed(0)
    model, x = Classifier().eval(), torch.rand(8, 16) * 2 - 1
    for protocol in PROTOCOLS:
        private = tacit.secure(model, protocol=protocol, bound=1.0)
        answer = private(x)
        with torch.no_grad():
            error = float((answer.values - model(x)).abs().max())
        cost, forecast = without_setup(answer.cost), private.forecast((8, 16)).cost
        online = sum(t.payload_bytes for t in cost.traffic if t.phase == "online")
        print(f"{protocol}.error {error:.6f}")
        print(f"{protocol}.online {cost.online_rounds} rounds, {online} bytes")
        print(f"{protocol}.as-forecast {cost == forecast}")
        seen = [f"{leak.to}: {leak.what}" for leak in answer.ledger if leak.kind == "protocol"]
        print(f"{protocol}.shows {'; '.join(seen) or 'nothing'}")


if __name__ == "__main__":
    main()
