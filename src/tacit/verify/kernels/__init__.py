"""What is compiled. It imports nothing else of this room: its files alone name the cache."""
