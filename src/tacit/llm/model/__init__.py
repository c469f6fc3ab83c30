"""What a language model is: its shape, its files, its tokenizer, and what it computes."""
