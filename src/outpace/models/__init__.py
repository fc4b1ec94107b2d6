"""A model's name -> its file."""

from outpace.models.resolve import path, resolve

__all__ = ["path", "resolve"]
