"""An OpenAI-compatible server: the same rounds as `generate`, many requests at a time."""
