"""Loading time, memory, and memory over many generations; each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

from acceptance import Outcome

from first_light.common import EMBEDDED, TARGET, file_of

LOAD = """
import json, re, sys, time
import outpace.api, outpace.targets.native, outpace.native.loading, outpace.text, outpace.native.gguf
def peak():
    with open("/proc/self/status") as f:
        return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", f.read()).group(1))
bare = peak()
start = time.perf_counter()
model = outpace.load(sys.argv[1], threads=2, context=2048)
loaded = time.perf_counter() - start
ids = [(7 * i) % 1000 + 100 for i in range(2040)]
from outpace.types import EMPTY, Prompt
session, _ = model.target.open(Prompt(tuple(ids)))
model.target.score_many([(session, EMPTY)])
print(json.dumps({"load": loaded, "peak": peak() - bare}))
"""

MANY = """
import json, sys
import outpace
def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096
model = outpace.load(sys.argv[1], threads=2, context=2048)
sizes = []
for i in range(200):
    prompt = f"Write {i % 7 + 2} sentences about the number {i}."
    model.generate(prompt, max_tokens=16 + i % 48, temperature=0.7, seed=i)
    sizes.append(resident())
print(json.dumps({"early": max(sizes[50:60]), "late": max(sizes[-10:])}))
"""


def child(program: str, name: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, check=True)
    record: dict[str, float] = json.loads(done.stdout)
    return record


def loading(name: str, seconds: float, share: float) -> Iterator[Outcome]:
    size = file_of(name).stat().st_size
    record = child(LOAD, name)
    yield Outcome(f"{name}, load and pack", f"{record['load']:.2f} s", f"under {seconds} s", record["load"] < seconds)
    ratio = record["peak"] / size
    yield Outcome(f"{name}, peak memory less the imports, 2,048 tokens",
                  f"{record['peak'] / 1e6:.0f} MB, {ratio:.2f} times the file",
                  f"at most {share}", ratio <= share)  # fmt: skip


def flat() -> Iterator[Outcome]:
    file_of(EMBEDDED)
    record = child(MANY, EMBEDDED)
    growth = record["late"] / record["early"] - 1
    yield Outcome(
        "200 generations, resident memory", f"{100 * growth:+.1f} % from the 50th", "within 2 %", growth < 0.02
    )


LINES: list[tuple[str, str, Callable[[], Iterator[Outcome]]]] = [
    ("loading", "embedded model: load and memory", lambda: loading(EMBEDDED, 1.5, 1.8)),
    ("pair-loading", "1.5B: load and memory", lambda: loading(TARGET, 6.0, 1.4)),
    ("flat", "embedded model: memory over 200 generations", flat),
]
