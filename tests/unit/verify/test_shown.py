"""How verdicts print."""

import numpy as np

from tacit.verify import Box, Counterexample, Robust, Unknown

CENTER = np.array([1.0, 2.0])
BOX = Box(CENTER, CENTER - 0.5, CENTER + 0.5)


def test_a_verdict_says_what_was_asked_and_what_was_found():
    asked = {"box": BOX, "prediction": 1.0, "rho": None, "nodes": 3}
    assert repr(Robust(**asked)).splitlines()[:3] == [
        "Robust",
        "  prediction  1",
        "  within      ±0.5 at most, in every feature",
    ]
    changed = Counterexample(**asked, x=CENTER + np.array([0.5, 0.0]), changed=0.0)
    assert "0, by a change of 1 of 2 features" in repr(changed)
    assert (
        "<td style='text-align:left'>out of time</td>"
        in Unknown(**asked, reason="out of time")._repr_html_()
    )


def test_a_box_of_two_radii_says_both():
    wide = Box(CENTER, CENTER - 0.25, CENTER + 0.5)
    shown = repr(Robust(box=wide, prediction=0.0, rho=None, nodes=0))
    assert "−0.25, +0.5 at most" in shown
