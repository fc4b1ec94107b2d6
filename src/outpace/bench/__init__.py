"""Measurements: pure functions that return figures and print nothing."""
