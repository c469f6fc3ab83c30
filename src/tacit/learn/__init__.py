"""Learning: joint training, federated, split and vertical, and private prediction."""
