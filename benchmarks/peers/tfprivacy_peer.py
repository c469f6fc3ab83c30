"""TensorFlow Privacy's LiRA: ``tfprivacy_peer.py OUTPUTS.npz SCORES.npz`` scores kept outputs.

`advanced_mia` itself needs NumPy and SciPy only, so TensorFlow, which its packages import on the
way, is not installed: the packages above it are entered without being run.
"""

import importlib
import importlib.metadata
import sys
import types
import warnings
from typing import Any

ROOT = "tensorflow_privacy"
PACKAGES = ("privacy", "privacy.privacy_tests", "privacy.privacy_tests.membership_inference_attack")
MODULE = f"{ROOT}.{PACKAGES[-1]}.advanced_mia"


def load_module() -> Any:
    """Import `advanced_mia` without the packages' own code."""
    found = importlib.metadata.distribution("tensorflow-privacy").locate_file(ROOT)
    for name in ("", *PACKAGES, "privacy.privacy_tests.utils"):
        dotted = f"{ROOT}.{name}" if name else ROOT
        package = types.ModuleType(dotted)
        package.__path__ = [str(found.joinpath(*name.split(".")) if name else found)]
        if not name.endswith("utils") or (found / "privacy/privacy_tests/utils").is_dir():
            sys.modules[dotted] = package
    return importlib.import_module(MODULE)


def main(source: str, target: str) -> None:
    """Score every target model with its online and offline variants."""
    np = importlib.import_module("numpy")
    mia = load_module()
    kept = np.load(source, allow_pickle=False)
    labels, coins = kept["labels"], kept["coins"]

    def statistic(log_probs: Any) -> Any:
        return mia.calculate_statistic(
            log_probs.astype(np.float64), labels, None, is_logits=True, option="logit"
        )

    shadows = np.stack([statistic(one) for one in kept["outputs"]])
    rows = range(len(labels))
    inside = [shadows[coins[:, row], row][:, None] for row in rows]
    outside = [shadows[~coins[:, row], row][:, None] for row in rows]
    found: dict[str, list[Any]] = {}
    for outputs in kept["target_outputs"]:
        own = statistic(outputs)[:, None]
        for option in ("both", "out"):
            for is_fixed in (False, True):
                scores = mia.compute_score_lira(
                    own, inside, outside, option=option, fix_variance=is_fixed
                )
                name = f"LiRA {option}, {'fixed' if is_fixed else 'own'} variance"
                # It scores non-members higher.
                found.setdefault(name, []).append(-np.asarray(scores))
    np.savez(target, **{name: np.stack(one) for name, one in found.items()})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:3])
