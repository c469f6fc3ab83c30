"""Tune a language model on invented dialogues in which ages and doses stay private.

Prints what the policy marks, the perplexity with and without protection, and what was spent: ε,
never above the target of 2, about what is marked of one patient.
"""

import copy
from dataclasses import replace

from tacit.ring import Prg
from tacit.text import (
    CausalModule,
    Text,
    TextPlan,
    by_pattern,
    fine_tune,
    mark_corpus,
    measure_perplexity,
    tiny_model,
    train_tokenizer,
)


def main() -> None:
    """Tune twice on the same texts."""
    prg = Prg(b"invented example")
    draws = zip(prg.below(80, 300).tolist(), prg.below(9, 300).tolist(), strict=True)
    said = [f"我今年{9 + age}岁，头痛。医生：每天吃{1 + dose}片。" for age, dose in draws]
    texts = [Text(text=text, owner=f"patient {n}") for n, text in enumerate(said)]

    policy = by_pattern()  # digits, numerals, dates, ages, doses, telephone and ID numbers, e-mail
    first = said[0]
    print("marked", [first[span.start : span.end] for span in policy(first)])

    tokenizer = train_tokenizer(["头痛的病人今年要吃药，每天几片，医生说。0123456789岁"], size=300)
    corpus = mark_corpus(texts[:250], tokenizer, policy, starts=tokenizer.starts)
    held = mark_corpus(texts[250:], tokenizer, policy, starts=tokenizer.starts)
    module = CausalModule(tiny_model(tokenizer.size, width=32))
    plan = TextPlan(method="jft", epsilon=2, epochs=8, rate=1e-2, length=96)

    plain = fine_tune(copy.deepcopy(module), corpus, replace(plan, method="none", length=256))
    tuned = fine_tune(module, corpus, plan)
    for name, one in (("plain", plain), ("private", tuned)):
        found = measure_perplexity(one.module, held.texts, length=96)
        print(f"{name} perplexity {found.value:.2f}")
    claim = tuned.claim
    print(f"epsilon {claim.epsilon:.3f} at δ = {claim.delta:g} for {claim.relation}")


if __name__ == "__main__":
    main()
