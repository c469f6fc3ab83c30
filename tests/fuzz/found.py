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
    "a function of a product in a smaller ring": Program(
        inputs=(
            Given("alice", 1.0, [[0.5, 0.25]], (1, 2)),
            Given("bob", 1.0, [[1.0], [0.5]], (2, 1)),
        ),
        steps=(
            Step("matmul_within", (0, 0, 1)),
            Step("log", (2,)),
            Step("relu", (2,)),
            Step("softmax", (2,), {"dim": -1}),
        ),
    ),
    "attention of a sigmoid": Program(
        inputs=(
            Given("alice", 8.0, [[0.5, -3.0], [2.0, 1.0]], (2, 2)),
            Given("bob", 16.0, [[3.0], [-7.5]], (2, 1)),
        ),
        steps=(
            Step("sigmoid", (0,)),
            Step("attention_mixed", (2, 1), {"kept": True}),
            Step("attention", (2,), {"kept": True}),
        ),
    ),
    "a comparison of no numbers": Program(
        inputs=(Given("bob", 8.0, [], (0,)),), steps=(Step("relu", (0,)),)
    ),
}
