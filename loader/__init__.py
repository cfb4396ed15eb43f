"""Checkpoints and texts into memory: files, tokenisers, the wire format. No torch."""
