"""ART's learned black-box attack: ``art_peer.py OUTPUTS.npz SCORES.npz`` scores kept outputs.

The attack model learns from the first shadow model's answers, whose members are known, and is then
shown the targets' answers.
"""

import importlib
import sys
import warnings
from typing import Any


def main(source: str, target: str) -> None:
    """Score every target model with a forest and with a logistic regression."""
    np = importlib.import_module("numpy")
    attacks = importlib.import_module("art.attacks.inference.membership_inference")
    estimators = importlib.import_module("art.estimators.classification")
    kept = np.load(source, allow_pickle=False)
    labels, coins, outputs = kept["labels"], kept["coins"], np.exp(kept["outputs"])
    classes = outputs.shape[-1]
    hot = np.eye(classes)[labels]
    empty = estimators.BlackBoxClassifier(lambda x: np.zeros((len(x), classes)), (1,), classes)
    found: dict[str, list[Any]] = {}
    for kind in ("rf", "lr"):
        attack = attacks.MembershipInferenceBlackBox(empty, attack_model_type=kind)
        inside = coins[0]
        attack.fit(
            y=hot[inside],
            test_y=hot[~inside],
            pred=outputs[0][inside],
            test_pred=outputs[0][~inside],
        )
        for answers in np.exp(kept["target_outputs"]):
            scores = attack.infer(None, hot, pred=answers, probabilities=True)
            found.setdefault(f"black box, {kind}", []).append(np.asarray(scores)[:, -1])
    np.savez(target, **{name: np.stack(one) for name, one in found.items()})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:3])
