"""Private text: fine-tuning and generation that do not repeat what a policy marks."""
