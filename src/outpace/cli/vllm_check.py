"""Whether the vLLM that is installed here knows a --speculative-config.

It is asked in a process of its own: importing it takes seconds, and it writes to stdout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

SECONDS = 120.0

_ASK = """
import dataclasses, json, sys, typing
from vllm.config import SpeculativeConfig
from vllm.config.speculative import SpeculativeMethod
config = json.loads(sys.argv[1])
unknown = sorted(set(config) - {field.name for field in dataclasses.fields(SpeculativeConfig)})
if config["method"] not in typing.get_args(SpeculativeMethod):
    unknown.append("method " + config["method"])
sys.stderr.write("\\n" + json.dumps(unknown))
"""


def checked_by_vllm(config: Mapping[str, Any] | None) -> str:
    """Returns one line: known to vLLM's own configuration, in which version; or that it was not checked, and why."""
    if config is None:
        return "nothing to check"
    try:
        installed = version("vllm")
    except PackageNotFoundError:
        return "not checked: vLLM is not installed here"
    command = [sys.executable, "-c", _ASK, json.dumps(dict(config))]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
        unknown = json.loads(asked.stderr.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        return f"not checked: vLLM {installed} could not be asked ({type(error).__name__})"
    if unknown:
        return f"refused: vLLM {installed} does not know {', '.join(unknown)}"
    return f"checked: vLLM {installed} knows this method and these keys"
