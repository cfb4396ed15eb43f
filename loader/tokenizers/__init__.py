"""Tokenisers: a kind is one file and one row in table.py."""
