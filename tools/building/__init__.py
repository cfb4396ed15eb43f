"""What `python -m tools.build` is made of."""
