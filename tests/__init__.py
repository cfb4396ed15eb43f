"""Tests: test_<folder>_<module>.py for one module each, simulate/ and chaos/ for the whole."""
