"""The lines of `accept.py widths`."""
