"""Slow numpy forward passes, one a family: the executable specification of its program."""
