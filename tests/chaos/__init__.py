"""Kills and stops real processes of a real server under load, and verifies every answer."""
