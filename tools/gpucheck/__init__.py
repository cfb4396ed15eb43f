"""Proof of the GPU part on a real GPU, in parts that each have a time limit."""
