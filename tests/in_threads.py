"""The job of the examples of private prediction, with every party a thread of this process."""

from tacit.data import load_dataset, split_dataset
from tacit.inference import PredictTask, predict, scaled_features, train_logistic
from tacit.mpc import Roles
from tacit.party import Meeting, run_threads

NAMES = ("hospital", "lab", "dealer")


def predict_in_threads(*, protocol, reveal, frac_bits=20):
    """Return the answers that the hospital gets from the lab's model."""
    data = load_dataset("breast-cancer", ())
    features = scaled_features(split_dataset(data, part="test", seed=0))
    weights = train_logistic(split_dataset(data, part="train", seed=0))
    task = PredictTask(
        data_owner="hospital",
        model_owner="lab",
        protocol=protocol,
        roles=Roles(*NAMES),
        reveal=reveal,
        frac_bits=frac_bits,
        feature_bound=1.0,
        weight_bound=256.0,
    )

    def party(session):
        return predict(
            session,
            task,
            features=features if session.me == "hospital" else None,
            weights=weights if session.me == "lab" else None,
        )

    meeting = Meeting(parties=NAMES, job_digest=b"d" * 32)
    return run_threads(dict.fromkeys(NAMES, party), meeting)["hospital"].values.tolist()
