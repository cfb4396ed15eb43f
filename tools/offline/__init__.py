"""Classifying a whole file without a server: its parts, the engines, and results in order."""
