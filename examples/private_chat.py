"""Chat with a language model whose owner does not see the words.

    tacit model get smollm2-135m
    python private_chat.py smollm2-135m "Why is the sky blue?"

Owner, user and dealer are threads of this process, to try it. Prints the answer of the plain model
and under two protocols (the same), what was sent, and what the user was shown on the way: under
sealed tokens and bounds; under permuted so much that one who cheats can compute the weights.
"""

import sys

import tacit


def main() -> None:
    """Ask the same thing three times."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    model, text = sys.argv[1:]
    for protocol in ("plain", "sealed", "permuted"):
        with tacit.llm.chat(model, protocol=protocol, limit=3) as talk:
            print(f"{protocol}.answer {talk.say(text).text!r}")
            print(f"{protocol}.sent {talk.spent.payload_bytes} bytes")
            shown = [leak.what for leak in talk.learned.get("user", ())]
            print(f"{protocol}.shown {'; '.join(shown) or 'nothing'}")


if __name__ == "__main__":
    main()
