"""Benchmarks: each prints one JSON line a figure, with the machine and the commit."""
