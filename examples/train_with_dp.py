"""Train any torch model with differential privacy: three lines of a training loop change.

Prints the noise that was computed before the first row was read, the test accuracy with and without
privacy (above 84 and 89 per cent), and what was spent: ε, never above the target of 4.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tacit.dp import make_private

EPOCHS, EPSILON, DELTA = 20, 4.0, 1e-4


def main() -> None:
    """Train twice on the same rows."""
    pictures, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pictures / 16, dtype=torch.float32), torch.tensor(digits)
    train, test = (x[:1500], y[:1500]), (x[1500:], y[1500:])

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    loader = DataLoader(TensorDataset(*train), batch_size=250)
    private = make_private(
        model, optimizer, loader, epsilon=EPSILON, delta=DELTA, epochs=EPOCHS, clip=0.5
    )
    print(f"noise {private.multiplier:.3f} clips")
    for _ in range(EPOCHS):
        for rows, labels in private.loader:
            private.step(F.cross_entropy(model(rows), labels, reduction="none"))
    claim = private.claim
    print(f"private {accuracy(model, *test):.3f}")
    print(f"epsilon {claim.epsilon:.3f} at δ = {claim.delta:g} for {claim.relation}")

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.02)
    for _ in range(EPOCHS):
        for rows, labels in loader:
            optimizer.zero_grad()
            F.cross_entropy(plain(rows), labels).backward()
            optimizer.step()
    print(f"plain {accuracy(plain, *test):.3f}")


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    """Tell how many rows get their class."""
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


if __name__ == "__main__":
    main()
