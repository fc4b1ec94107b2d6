"""Reads damaged GGUF and safetensors models until a count is reached, and says what the worst of them cost.

    python scripts/fuzz_readers.py [--count N] [--seed S] [--jobs J]

Every input is a function of its number: a failure names it, and `--seed N --count 1` shows it again. Each must end
in one of outpace's own errors or be read to its end, loaded and used, within two seconds of processor time, and may
not take more than four times its size (and a megabyte for Python's own objects). Anything else ends the run with
status 1. With a module built under sanitizers (OUTPACE_SANITIZE) what the engine does is checked, too; Python
then has to be started with their library in LD_PRELOAD.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from safetensors_writer import tiny_folder

from damage import damage, use
from gguf_writer import tiny_model

SECONDS = 2.0
TIMES_SIZE, ALLOWANCE = 4, 1 << 20
CHUNK = 2000


@dataclass(frozen=True, slots=True)
class Found:
    """What a run of inputs did. worst_memory: beyond what was in use before, in bytes."""

    inputs: int
    refused: int
    worst_seconds: float
    worst_memory: int
    failures: tuple[str, ...]


def run(first: int, count: int) -> Found:
    """Returns what inputs [first, first + count) did."""
    signal.signal(signal.SIGPROF, _too_long)
    refused, worst_seconds, worst_memory, failures = 0, 0.0, 0, []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        kinds = _kinds(Path(folder))
        tracemalloc.start()
        for number in range(first, first + count):
            write = kinds[number % len(kinds)]
            path, size = write(random.Random(number))
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], process_time()
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                refused += bool(use(path))
            except Exception as error:  # whatever is not one of ours is what this run is for
                failures.append(f"input {number}: {type(error).__name__}: {error}"[:500])
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            used = tracemalloc.get_traced_memory()[1] - before
            worst_seconds, worst_memory = max(worst_seconds, process_time() - started), max(worst_memory, used)
            if used > TIMES_SIZE * size + ALLOWANCE:
                failures.append(f"input {number}: took {used} bytes, the file has {size}")
    return Found(count, refused, worst_seconds, worst_memory, tuple(failures))


def _too_long(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS:g} s")


def _kinds(folder: Path) -> list[Callable[[random.Random], tuple[Path, int]]]:
    """Returns writers of damaged models: two of GGUF, one each of the other files of a folder of safetensors."""
    good = tiny_model(folder / "good.gguf").read_bytes()
    hub = tiny_folder(folder / "hub")

    def gguf(rng: random.Random) -> tuple[Path, int]:
        data = damage(rng, good, 2_000 if rng.random() < 0.5 else 7_700)  # keys; then tensors, too
        (folder / "bad.gguf").write_bytes(data)
        return folder / "bad.gguf", len(data)

    def part(name: str) -> Callable[[random.Random], tuple[Path, int]]:
        whole = (hub / name).read_bytes()
        others = sum(file.stat().st_size for file in hub.iterdir()) - len(whole)

        def write(rng: random.Random) -> tuple[Path, int]:
            data = damage(rng, whole, 3000)
            (hub / name).write_bytes(data)
            return hub, len(data) + others

        return write

    def restored(name: str) -> Callable[[random.Random], tuple[Path, int]]:
        write, whole = part(name), (hub / name).read_bytes()
        named = {"model.safetensors", "config.json", "tokenizer.json"} - {name}
        kept = {other: (hub / other).read_bytes() for other in named}

        def fresh(rng: random.Random) -> tuple[Path, int]:
            for other, data in kept.items():
                (hub / other).write_bytes(data)
            (hub / name).write_bytes(whole)
            return write(rng)

        return fresh

    return [gguf, gguf, *(restored(name) for name in ("model.safetensors", "config.json", "tokenizer.json"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000, help="inputs (default: a million)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first input")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parser.parse_args()
    starts = range(options.seed, options.seed + options.count, CHUNK)
    counts = [min(CHUNK, options.seed + options.count - start) for start in starts]
    with ProcessPoolExecutor(options.jobs) as pool:
        found = list(pool.map(run, starts, counts))
    failures = [failure for part in found for failure in part.failures]
    print(
        f"{sum(part.inputs for part in found)} inputs, {sum(part.refused for part in found)} refused; at most "
        f"{max(part.worst_seconds for part in found):.2f} s and {max(part.worst_memory for part in found)} bytes; "
        f"{len(failures)} failures"
    )
    for failure in failures[:20]:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
