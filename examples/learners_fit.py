"""A bank and a shop learn who comes back, on columns that neither shows.

    python examples/learners_fit.py

All parties are threads of this process here. Between hosts each runs the same lines with
`tacit.learners.Connected` and its own columns alone.
"""

import numpy as np

from tacit.learners import GradientBoostingClassifier, LinearSVC, Local

CUSTOMERS = 400


def customers() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Make balances that the bank has, purchases that the shop has, and who came back."""
    coins = np.random.default_rng(0)
    balances = coins.normal(size=(CUSTOMERS, 3))
    purchases = coins.normal(size=(CUSTOMERS, 4))
    drift = balances[:, 0] - 2 * purchases[:, 1] + balances[:, 1] * purchases[:, 0]
    return balances, purchases, (drift + coins.normal(size=CUSTOMERS) > 0).astype(int)


def main() -> None:
    """Fit two learners, forecast first, and open nothing but their scores."""
    balances, purchases, came_back = customers()
    with Local("bank", "shop") as parties:
        table = parties.columns({"bank": balances, "shop": (purchases, came_back)})
        for model in (
            LinearSVC(max_iter=15),
            GradientBoostingClassifier(3, max_depth=3, max_bins=16),
        ):
            forecast = model.forecast(table, parties)
            sent = sum(one.payload_bytes for one in forecast.cost.traffic)
            model.fit(table, parties)
            right = model.score(table, to=("shop",))
            rounds = forecast.cost.online_rounds
            print(
                f"{model.loss} {right:.3f} right of rows fitted on, {rounds} rounds, {sent:,} bytes"
            )
        shown = [one for one in parties.ledger() if one.kind != "size"]
        print("shown", *(f"{one.what} to {one.to};" for one in shown))


if __name__ == "__main__":
    main()
