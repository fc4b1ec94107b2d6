"""Training of draft heads on text that the target itself has written."""
