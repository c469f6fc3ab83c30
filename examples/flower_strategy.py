"""A Flower app with privacy: one line changes on the server, one on the clients.

Twenty nodes train a line through points of their own. The server keeps its FedAdam and its tests;
of the updates it sees a sum under noise. Prints the error before and after (far below it), and ε.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam
from flwr.simulation import run_simulation

from tacit.federated import FederatedSpec, Federation, Privacy
from tacit.federated.flower import PrivateStrategy, client_mod

NODES, ROUNDS, TRUE = 20, 8, np.array([0.6, -0.3])
PRIVACY = Privacy(kind="central", clip=0.5, epsilon=8.0, delta=1e-3)
TERMS = Federation(clients=NODES, rounds=ROUNDS, minimum=NODES)
SPEC = FederatedSpec(federated=TERMS, privacy=PRIVACY)

client_app = ClientApp(mods=[client_mod(SPEC)])  # the line that changes
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Take ten steps on this node's points, as any Flower app does."""
    weights = message.content["arrays"]["line"].numpy().copy()
    x = np.random.default_rng(int(context.node_config["partition-id"])).normal(size=(50, 2))
    for _ in range(10):
        weights -= 0.05 * x.T @ (x @ (weights - TRUE)) / len(x)
    content = {
        "arrays": ArrayRecord({"line": Array(weights)}),
        "m": MetricRecord({"num-examples": 50}),
    }
    return Message(RecordDict(content), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds, and test on the server's own points."""
    beneath = FedAdam(
        fraction_evaluate=0.0, min_train_nodes=NODES, min_available_nodes=NODES, eta=0.1
    )
    strategy = PrivateStrategy(beneath, SPEC)  # the other line
    first = ArrayRecord({"line": Array(np.zeros(2))})
    found = strategy.start(grid, first, num_rounds=ROUNDS, evaluate_fn=test)
    scores = found.evaluate_metrics_serverapp
    print(f"before {scores[0]['error']:.3f}\nafter {scores[ROUNDS]['error']:.3f}")
    print(f"epsilon {strategy.claim.epsilon:.2f} for {strategy.claim.relation}")


def test(number: int, arrays: ArrayRecord) -> MetricRecord:
    """Tell how far the line is from the true one."""
    return MetricRecord({"error": float(np.linalg.norm(arrays["line"].numpy() - TRUE))})


if __name__ == "__main__":
    run_simulation(server_app, client_app, num_supernodes=NODES)
