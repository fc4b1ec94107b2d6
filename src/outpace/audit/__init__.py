"""Checks that anyone can run: that the rules keep the target's law, and that the checks would see it if not."""
