"""VoTE (Törnblom, Nadjm-Tehrani): ``vote_peer.py PROBLEM QUANTITY`` answers ``measure``.

There is no package of it. Build it from its sources and install it to ``benchmarks/.peers/vote``
(``./configure --prefix=…; make install``); `vote_peer.c` is compiled against it here, by ``cc``.
Counted is processor time of its search, called from C; a class with one score is two outputs, one
of them always 0.
"""

import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _verify_problem import Answer, Problem, process_time, serve

PREFIX = Path(__file__).parents[1] / ".peers" / "vote"


class Vote:
    """The library and the ensemble it was given."""

    def __init__(self, prefix: Path) -> None:
        self._folder = tempfile.TemporaryDirectory()
        made, library = Path(self._folder.name) / "vote_peer.so", prefix / "lib"
        command = ["cc", "-O2", "-shared", "-fPIC", f"-I{prefix / 'include'}", "-o", str(made)]
        command += [str(Path(__file__).with_suffix(".c")), f"-L{library}", "-lvote"]
        subprocess.run([*command, f"-Wl,-rpath,{library}"], check=True)
        self._loader = ctypes.CDLL(str(library / "libvote.so"))
        self._loader.vote_ensemble_load_file.restype = ctypes.c_void_p
        self._asker = ctypes.CDLL(str(made))
        self._asker.decide.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t, ctypes.c_double]
        self._ensemble: Any = None

    def solve(self, problem: Problem, row: int) -> Answer:
        """Decide one row."""
        if self._ensemble is None:
            path = Path(self._folder.name) / "ensemble.json"
            path.write_text(json.dumps(translate(problem)))
            self._ensemble = self._loader.vote_ensemble_load_file(str(path).encode())
        box = np.ascontiguousarray(np.stack([problem.low[row], problem.high[row]], axis=1), float)
        about = self._ensemble, box.ctypes.data, int(problem.label[row]), problem.seconds
        begun = process_time()
        verdict = self._asker.decide(*about)
        return int(verdict), process_time() - begun


def translate(problem: Problem) -> dict[str, Any]:
    """Write the trees in VoTE's form: left when x <= threshold, a list of outputs per node."""
    trees = [_tree(problem, int(root), number == 0) for number, root in enumerate(problem.roots)]
    return {"trees": trees, "post_process": "none"}


def _tree(problem: Problem, root: int, is_first: bool) -> dict[str, Any]:
    nodes = [root]
    for node in nodes:  # grows while it is walked through
        if problem.feature[node] >= 0:
            nodes += [int(problem.left[node]), int(problem.right[node])]
    place = np.zeros(problem.feature.size, dtype=int)
    place[nodes] = np.arange(len(nodes))
    is_leaf = problem.feature[nodes] < 0
    value = problem.value[nodes] + (problem.base if is_first else 0.0)
    if value.shape[1] == 1:
        value = np.concatenate([np.zeros_like(value), value], axis=1)
    below = np.nextafter(problem.split[nodes].astype(float), -np.inf)
    return {
        "nb_inputs": problem.low.shape[1],
        "nb_outputs": value.shape[1],
        "normalize": False,
        "left": np.where(is_leaf, -1, place[problem.left[nodes]]).tolist(),
        "right": np.where(is_leaf, -1, place[problem.right[nodes]]).tolist(),
        "feature": np.where(is_leaf, -1, problem.feature[nodes]).tolist(),
        "threshold": np.where(is_leaf, 0.0, below).tolist(),
        "value": value.tolist(),
    }


if __name__ == "__main__":
    if not (PREFIX / "lib" / "libvote.so").exists():
        sys.exit(f"VoTE is not installed at {PREFIX}; see the head of {Path(__file__).name}")
    serve("vote", Vote(PREFIX).solve)
