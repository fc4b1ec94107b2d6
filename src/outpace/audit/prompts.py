"""What a model is asked in an audit: short, of many kinds, some with repetitions that drafts can use."""

from __future__ import annotations

PROMPTS = (
    "Write a long story about a lighthouse keeper and her dog.",
    "Repeat this line five times: the quick brown fox jumps over the lazy dog.",
    "Write a Python function that returns the n-th Fibonacci number, and another that prints the first twenty.",
    "Correct the spelling and change nothing else: Teh cat sat on teh mat, and teh dog sat on teh cat.",
    "Translate into French, German and Spanish: Good morning, how are you today?",
    "A train leaves at 9:40 and takes 2 hours and 35 minutes. When does it arrive? Explain each step.",
    "List the numbers from 1 to 40, separated by commas.",
    "Name the four seasons with an emoji for each, then say naïve, façade and 日本語.",
)
"""Questions, in the model's chat template where it has one."""

TEXTS = (
    "The four seasons of the year are spring,",
    "Once upon a time, in a small village, there lived",
    "def add(a, b):\n    return a +",
    "Monday, Tuesday, Wednesday, Thursday,",
)
"""Beginnings to go on with, as they are: the first tokens after them are neither certain nor anything at all."""
