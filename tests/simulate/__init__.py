"""The whole house in one process, under a simulated clock, network and crash generator."""
