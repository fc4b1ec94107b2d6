"""Speculation inside `transformers`: `model.generate(**inputs)` keeps its call, its settings and its output.

>>> import outpace.hf
>>> outpace.hf.accelerate(model)                        # n-gram drafts; or draft=smaller_model
>>> model.generate(**inputs, max_new_tokens=128)
>>> outpace.hf.restore(model)

or, for one call, `model.generate(**inputs, custom_generate=outpace.hf.custom_generate)`.
"""

from __future__ import annotations

from outpace.errors import MissingExtra

try:
    from outpace.hf.accelerate import Accelerated, accelerate, custom_generate, restore
except ModuleNotFoundError as missing:
    if missing.name not in ("torch", "transformers"):
        raise
    raise MissingExtra("outpace.hf", "torch") from None

__all__ = ["Accelerated", "accelerate", "custom_generate", "restore"]
