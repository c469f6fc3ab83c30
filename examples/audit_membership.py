"""Ask what a model tells about the records it was trained on, before somebody else does.

Two decision trees learn from the same 200 patients: one remembers them all, one may ask three
questions about each. Prints for both how well the strongest attack tells members from strangers
(the area under its ROC curve: 0.5 is a guess; about 0.76 and 0.64), and the first audit as a table.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.tree import DecisionTreeClassifier

import tacit


def main() -> None:
    """Train, attack, compare."""
    x, y = load_breast_cancer(return_X_y=True)
    y = y.copy()
    y[::5] = 1 - y[::5]  # every fifth diagnosis is wrong: who knows it has seen the record
    members, strangers = (x[:200], y[:200]), (x[200:400], y[200:400])
    found = {}
    for name, depth in (("deep", None), ("shallow", 3)):
        model = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(*members)
        found[name] = tacit.audit.membership(model, members, strangers, shadows=8)
        print(f"{name} {found[name].auc:.3f}")
    print(found["deep"])


if __name__ == "__main__":
    main()
