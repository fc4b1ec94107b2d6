"""The wheel that a release would have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from acceptance import Outcome
from first_light.common import EMBEDDED, file_of

SCRIPT = Path(__file__).parents[1] / "release.sh"


def wheel() -> Iterator[Outcome]:
    command = ["bash", str(SCRIPT), str(Path(sys.executable).parent), str(file_of(EMBEDDED))]
    done = subprocess.run(command, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if line.startswith(("engine:", "text:"))]
    figure = "; ".join(said) if done.returncode == 0 else (done.stderr.strip().splitlines() or ["failed"])[-1]
    yield Outcome("installed into a clean environment", figure, "generates", done.returncode == 0)


LINES = [("wheel", "the wheel, built offline from the source distribution, generates", wheel)]
