"""What the page of attacks says was tried: each experiment is run again from a seed."""
