"""Train a forest and write what `tacit verify` asks about: a model file and a table of rows.

Writes forest.npz and patients.csv (the first 100 patients of the test half of scikit-learn's
breast-cancer data, every feature between 0 and 1), and prints how many trees and rows there are.
"""

import csv

from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import MinMaxScaler

from tacit.verify import from_sklearn, save_ensemble


def main() -> None:
    """Train, write, say."""
    found = load_breast_cancer()
    x = MinMaxScaler().fit_transform(found.data)
    train, test, train_y, test_y = train_test_split(x, found.target, test_size=0.5, random_state=0)
    forest = RandomForestClassifier(n_estimators=50, max_depth=6, random_state=0)
    forest.fit(train, train_y)
    save_ensemble(from_sklearn(forest), "forest.npz")
    with open("patients.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*found.feature_names, "diagnosis"])
        writer.writerows([*row, label] for row, label in zip(test[:100], test_y, strict=False))
    print(f"trees {len(forest.estimators_)}")
    print("rows 100")


if __name__ == "__main__":
    main()
