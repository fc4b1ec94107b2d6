"""Draft heads: what a trained head is, how its file is checked, and how it runs on the engine's kernels."""
