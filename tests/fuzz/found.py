"""Smallest programs that were wrong once, as the fuzzer printed them: each must stay right."""

from fuzz.program import Given, Program, Step

FOUND = {
    "shift of whole numbers": Program(
        inputs=(Given("alice", 8.0, [1.0, 3.0], (2,)),),
        steps=(Step("one_hot", (0,), {"classes": 3}), Step("shift", (1,), {"by": -0.07})),
    ),
}
