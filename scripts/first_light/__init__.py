"""The acceptance lines of the first part: kernel to terminal, on the embedded model and the real pair."""
