"""Who continues a text: a model in the clear, or a session with its owner and a dealer."""
