"""Drafters: a file each. They propose tokens; what becomes of a proposal is not their concern."""
