"""Smallest programs that were wrong once, as the fuzzer printed them: each must stay right."""

from fuzz.program import Given, Program, Step

FOUND = {
    "shift of whole numbers": Program(
        inputs=(Given("alice", 8.0, [1.0, 3.0], (2,)),),
        steps=(Step("one_hot", (0,), {"classes": 3}), Step("shift", (1,), {"by": -0.07})),
    ),
    "a product without numbers": Program(
        inputs=(Given("alice", 1.0, [[], []], (2, 0)), Given("alice", 8.0, [], (0, 5))),
        steps=(Step("matmul", (0, 1)),),
    ),
    "a curve of no numbers": Program(
        inputs=(Given("alice", 32.0, [[], []], (2, 0)),), steps=(Step("gelu", (0,)),)
    ),
    "the tail of softplus under a large bound": Program(
        inputs=(Given("alice", 2.0**17, [-4.82, -5.5546875, 5.4], (3,)),),
        steps=(Step("softplus", (0,)),),
    ),
    "the root of a large number": Program(
        inputs=(Given("alice", 16384.0, [2128.3872, 16000.0], (2,)),),
        steps=(Step("sqrt", (0,)),),
    ),
    "a comparison of no numbers": Program(
        inputs=(Given("bob", 8.0, [], (0,)),), steps=(Step("relu", (0,)),)
    ),
}
