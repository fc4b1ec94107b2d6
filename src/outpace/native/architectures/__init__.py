"""The decoders that the engine runs, one small file a family. A further one is a file like those, and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from outpace.native.architectures.base import Architecture
from outpace.native.architectures.gemma3 import GEMMA3
from outpace.native.architectures.llama import LLAMA
from outpace.native.architectures.phi3 import PHI3
from outpace.native.architectures.qwen import QWEN2, QWEN3, QWEN3MOE

__all__ = ["ARCHITECTURES", "BY_MODEL_TYPE", "SUPPORTED", "Architecture"]

_ALL = (LLAMA, QWEN2, QWEN3, QWEN3MOE, GEMMA3, PHI3)

ARCHITECTURES: Mapping[str, Architecture] = {found.name: found for found in _ALL}
"""By general.architecture of a GGUF file."""

BY_MODEL_TYPE: Mapping[str, Architecture] = {name: found for found in _ALL for name in found.model_types}
"""By model_type of a config.json."""

SUPPORTED = ", ".join(
    dict.fromkeys(name.removesuffix("_text").replace("_", "") for found in _ALL for name in found.model_types)
)
"""The families, as messages list them."""
