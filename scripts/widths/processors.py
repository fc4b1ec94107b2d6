"""The same bits on every instruction set that this machine runs; AVX2 beside its floor and llama.cpp built for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from acceptance import NotRun, Outcome
from first_light.common import DRAFT, EMBEDDED, SEED, TARGET, file_of, per_task

import outpace
from outpace import _native
from outpace.types import EMPTY, Prompt

BUILD = (
    'CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON" '
    "pip install --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
)
LIMITS = {1: 1.6, 4: 1.3, 8: 1.7}  # rows: times the floor; one row has to beat llama.cpp, too
WAYS: dict[str, dict[str, Any]] = {
    "plain": {"drafter": "none"},
    "ngram 4": {"drafter": "ngram", "draft_length": 4},
    "model 4": {"drafter": "model", "draft_length": 4},
}


@contextmanager
def forced(kernel: str) -> Iterator[None]:
    before = os.environ.get("OUTPACE_KERNEL")
    os.environ["OUTPACE_KERNEL"] = kernel
    try:
        yield
    finally:
        del os.environ["OUTPACE_KERNEL"]
        if before is not None:
            os.environ["OUTPACE_KERNEL"] = before


def fast_sets() -> list[str]:
    """Returns the sets that this machine runs but the portable one, which would take hours."""
    return [kernel for kernel in _native.kernels() if kernel != "portable"]


def same_logits(name: str) -> Iterator[Outcome]:
    """The logits after 40 tokens, `portable` included."""
    file_of(name)
    ids = tuple(np.random.default_rng(SEED).integers(0, 40_000, 40).tolist())
    expected = None
    for kernel in _native.kernels():
        with forced(kernel):
            target = outpace.load(name, threads=2, context=512).target
            session, _ = target.open(Prompt(ids))
            logits = target.score_many([(session, EMPTY)])[0].logits.copy()
            session.close()
        expected = logits if expected is None else expected
        different = int(np.count_nonzero(logits != expected))
        yield Outcome(f"{name}, {kernel}", f"{different} of {logits.size} logits differ", "none", different == 0)


def same_texts(name: str, draft: str | None, count: int) -> Iterator[Outcome]:
    questions = [prompt for _, prompt in per_task(count)]
    expected: dict[str, list[tuple[int, ...]]] = {}
    for kernel in fast_sets():
        for threads in (1, 2):
            with forced(kernel):
                model = outpace.load(name, draft=draft, threads=threads, context=4096)
                for law, options in (("greedy", {"temperature": 0.0}), ("temperature 1", {"temperature": 1.0})):
                    for way, choice in WAYS.items():
                        if way.startswith("model") and draft is None:
                            continue
                        asked = {**options, **choice, "seed": SEED, "max_tokens": 48}
                        texts = [model.generate(question, **asked).tokens for question in questions]
                        wanted = expected.setdefault(law, texts)
                        equal = sum(a == b for a, b in zip(texts, wanted, strict=True))
                        figure = f"{equal} of {len(texts)} texts equal"
                        yield Outcome(f"{name}, {kernel}, {threads} threads, {law}, {way}", figure, "all",
                                      equal == len(texts))  # fmt: skip


def bench(name: str, kernel: str, *options: str) -> dict[str, Any]:
    file_of(name)
    if kernel not in _native.kernels():
        raise NotRun(f"this processor does not run {kernel}")
    command = [
        sys.executable,
        "-m",
        "outpace",
        "bench",
        "kernels",
        "--model",
        name,
        "--threads",
        "2",
        "--json",
        *options,
    ]
    environment = {**os.environ, "OUTPACE_KERNEL": kernel}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["said nothing"])[-1])
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def floors(name: str, kernel: str) -> Iterator[Outcome]:
    for line in bench(name, kernel)["forward"]:
        rows, ratio = line["rows"], line["seconds"] / line["floor_seconds"]
        if line["context"] == 128 and rows in LIMITS:
            figure = f"{line['seconds'] * 1e3:.2f} ms, {ratio:.2f} times the floor"
            yield Outcome(f"{name}, {kernel}, {rows} rows", figure, f"at most {LIMITS[rows]}", ratio <= LIMITS[rows])


def against_llama_cpp(name: str) -> Iterator[Outcome]:
    """Needs a llama-cpp-python that was built for AVX2 and nothing above."""
    try:
        import llama_cpp
    except ImportError:
        raise NotRun("llama-cpp-python is not installed here") from None
    features = llama_cpp.llama_print_system_info().decode()
    if "AVX2 = 1" not in features or "AVX512 = 1" in features or "AVX_VNNI = 1" in features:
        raise NotRun(f"llama.cpp is not built for AVX2 alone: {BUILD}")
    report = bench(name, "avx2", "--peers")
    ours = {
        line["rows"]: line["seconds"] for line in report["forward"] if line["context"] == report["peer"]["context"]
    }
    for line in report["peer"]["forward"]:
        ratio = line["seconds"] / ours[line["rows"]]
        yield Outcome(f"{name}, avx2, {line['rows']} rows", f"{ratio:.2f} times as fast as llama.cpp", "at least 1",
                      ratio >= 1)  # fmt: skip


LINES = [
    ("sets-logits", "every instruction set gives the same logits", lambda: same_logits(EMBEDDED)),
    ("sets-texts", "texts do not depend on the instruction set", lambda: same_texts(EMBEDDED, None, 3)),
    ("sets-pair", "nor do those of the pair", lambda: same_texts(TARGET, DRAFT, 1)),
    ("avx2", "AVX2 beside its floor, embedded model", lambda: floors(EMBEDDED, "avx2")),
    ("avxvnni", "AVX2 with its dot instruction beside its floor", lambda: floors(EMBEDDED, "avxvnni")),
    ("pair-avx2", "AVX2 beside its floor, 1.5B", lambda: floors(TARGET, "avx2")),
    ("pair-avxvnni", "AVX2 with its dot instruction beside its floor, 1.5B", lambda: floors(TARGET, "avxvnni")),
    ("avx2-llama-cpp", "not slower than llama.cpp built for AVX2", lambda: against_llama_cpp(EMBEDDED)),
    ("pair-avx2-llama-cpp", "nor is the 1.5B", lambda: against_llama_cpp(TARGET)),
]
